/** Numbers and sizes as text. */

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })

/** 48213 -> `48,213`. */
export function count(value: number): string {
  return whole.format(value)
}

/** 1 -> `1 byte`, 7 -> `7 bytes`. */
export function plural(value: number, unit: string): string {
  return `${count(value)} ${unit}${value === 1 ? '' : 's'}`
}

/** 1048576 -> `1 MiB`. */
export function size(bytes: number): string {
  if (bytes < 1024) return plural(bytes, 'byte')
  const [unit, value] =
    bytes < 2 ** 20 ? ['KiB', bytes / 1024] : bytes < 2 ** 30 ? ['MiB', bytes / 2 ** 20] : ['GiB', bytes / 2 ** 30]
  return `${Number(value.toPrecision(3))} ${unit}`
}

/** A probability: 0.98942 -> `98.9 %`. */
export function percent(value: number): string {
  return `${(100 * value).toFixed(1)} %`
}

/** A measured number with about four digits. */
export function number(value: number): string {
  if (value === 0) return '0'
  const digits = Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential(2) : value.toPrecision(4)
  return digits.includes('e') ? digits : Number(digits).toLocaleString('en', { maximumFractionDigits: 6 })
}

/** A rate, with three digits at most: 0.2957 -> `0.296`. */
export function short(value: number): string {
  return Number(value.toPrecision(3)).toLocaleString('en', { maximumFractionDigits: 3 })
}

/** Milliseconds: 0.42 -> `0.42 ms`, 1234 -> `1.23 s`. */
export function milliseconds(value: number): string {
  return value < 1000 ? `${Number(value.toPrecision(value < 10 ? 2 : 3))} ms` : `${(value / 1000).toFixed(2)} s`
}

/** Seconds: 92 -> `1 min 32 s`. */
export function seconds(value: number): string {
  if (value < 60) return `${Number(value.toPrecision(2))} s`
  const minutes = Math.floor(value / 60)
  if (minutes < 60) return `${minutes} min ${Math.round(value % 60)} s`
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}

/** A time in UTC: `2018-02-21 00:15`, without the time of day at midnight if `isDate`. */
export function time(epochSeconds: number, isDate = false): string {
  const text = new Date(epochSeconds * 1000).toISOString()
  return isDate ? text.slice(0, 10) : text.slice(0, 16).replace('T', ' ')
}
