/** An example of a series: a made-up transformer with the channels of ETTm2, a value every 15 minutes. */

const STEPS = 672
const START = Date.UTC(2024, 2, 4)
/** Name, mean, size of the daily swing, hour of the peak. */
const CHANNELS = [
  ['HUFL', 38, 7, 13],
  ['HULL', 11, 3, 12],
  ['MUFL', 42, 10, 13],
  ['MULL', 9.5, 2.2, 12],
  ['LUFL', 3.2, 1.6, 20],
  ['LULL', -1.2, 1.1, 20],
  ['OT', 24, 6, 15],
] as const

export const NAME = 'transformer.csv'

export function csv(): string {
  let state = 7
  const noise = () => {
    state = (state * 1103515245 + 12345) % 2147483648
    return state / 1073741824 - 1
  }
  const drift = CHANNELS.map(() => 0)
  const lines = Array.from({ length: STEPS }, (_, step) => {
    const hours = step / 4
    const weekend = Math.floor(hours / 24) % 7 > 4 ? 0.6 : 1
    const values = CHANNELS.map(([, mean, swing, peak], index) => {
      drift[index] = 0.98 * (drift[index] ?? 0) + 0.12 * noise()
      const angle = (2 * Math.PI * (hours - peak)) / 24
      const daily = Math.cos(angle) + 0.35 * Math.cos(2 * angle)
      return (mean + swing * (weekend * daily + (drift[index] ?? 0) + 0.05 * noise())).toFixed(3)
    })
    const time = new Date(START + step * 900_000).toISOString().slice(0, 19).replace('T', ' ')
    return [time, ...values].join(',')
  })
  return [['date', ...CHANNELS.map(([name]) => name)].join(','), ...lines, ''].join('\n')
}
