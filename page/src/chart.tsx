/** Line charts: uPlot, in the colours of the page. */

import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'

export interface Line {
  label: string
  /** Name of the CSS variable with its colour. */
  color: string
  width?: number
  dash?: number[]
}

/** A range of x that is shaded. */
export interface Shade {
  start: number
  end: number
  /** Name of the CSS variable with its colour. */
  color: string
  opacity: number
}

interface Props {
  /** Described to those who do not see it. */
  summary: string
  /** x and one list for each line. */
  data: uPlot.AlignedData
  lines: Line[]
  /** Indices of two lines, the upper first; the area between them is filled. */
  band?: [number, number]
  /** Drawn behind the lines. */
  shades?: Shade[]
  /** Whether x is a time in seconds. */
  hasTime: boolean
  /** Whether times are shown in the time zone of the browser; else in UTC. */
  isLocal?: boolean
  height: number
  /** First and last x that are shown. */
  range?: [number, number] | undefined
  /** Called with the index of x below the pointer, or null. */
  onHover?: (index: number | null) => void
  /** Called when the user has selected another range; charts without it cannot be zoomed. */
  onZoom?: (range: [number, number] | null) => void
  /** Whether the axis of y begins at 0. */
  fromZero?: boolean
  /** Whether all values of y are whole numbers. */
  isWhole?: boolean
  format: (value: number) => string
}

/** Formats of time by the distance of two ticks in seconds: the format, and the line below it where the unit changes. */
const CALENDAR: uPlot.Axis.Values = [
  [365 * 86_400, '{YYYY}', null, null, null, null, null, null, 1],
  [28 * 86_400, '{MMM}', '\n{YYYY}', null, null, null, null, null, 1],
  [86_400, '{MMM} {D}', '\n{YYYY}', null, null, null, null, null, 1],
  [60, '{HH}:{mm}', '\n{MMM} {D}', null, '\n{MMM} {D}', null, null, null, 1],
  [1, '{HH}:{mm}:{ss}', '\n{MMM} {D}', null, '\n{MMM} {D}', null, null, null, 1],
]
const CLOCK: uPlot.Axis.Values = [
  [60, '{HH}:{mm}', null, null, null, null, null, null, 1],
  [1, '{HH}:{mm}:{ss}', null, null, null, null, null, null, 1],
]
const WHOLE = [1, 2, 5]
  .flatMap((digit) => Array.from({ length: 9 }, (_, zeros) => digit * 10 ** zeros))
  .sort((a, b) => a - b)
const FONT = '12px system-ui, sans-serif'

export function Chart(props: Props) {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const latest = useRef(props)
  latest.current = props

  const shape = JSON.stringify([props.lines, props.band, props.hasTime, props.height])
  useEffect(() => {
    const element = box.current
    if (!element) return
    const draw = () => {
      plot.current?.destroy()
      plot.current = new uPlot(optionsOf(latest, element), latest.current.data, element)
      applyRange(plot.current, latest.current)
    }
    draw()
    const resized = new ResizeObserver(() => {
      if (element.clientWidth > 0) plot.current?.setSize({ width: element.clientWidth, height: props.height })
    })
    resized.observe(element)
    const scheme = matchMedia('(prefers-color-scheme: dark)')
    scheme.addEventListener('change', draw)
    return () => {
      resized.disconnect()
      scheme.removeEventListener('change', draw)
      plot.current?.destroy()
      plot.current = null
    }
  }, [shape])

  useEffect(() => {
    if (!plot.current) return
    plot.current.setData(props.data, false)
    applyRange(plot.current, props)
  }, [props.data, props.range?.[0], props.range?.[1]])

  useEffect(() => plot.current?.redraw(false), [props.shades])

  return <div class="chart" ref={box} role="img" aria-label={props.summary} />
}

function applyRange(plot: uPlot, { data, range }: Props): void {
  const x = data[0]
  const [min, max] = range ?? [x[0] ?? 0, x.at(-1) ?? 1]
  plot.setScale('x', { min, max })
}

function drawShades(plot: uPlot, shades: Shade[], color: (name: string) => string): void {
  const { ctx, bbox } = plot
  ctx.save()
  ctx.beginPath()
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height)
  ctx.clip()
  for (const shade of shades) {
    const left = plot.valToPos(shade.start, 'x', true)
    const right = plot.valToPos(shade.end, 'x', true)
    ctx.fillStyle = color(shade.color)
    ctx.globalAlpha = shade.opacity
    ctx.fillRect(left, bbox.top, right - left, bbox.height)
  }
  ctx.restore()
}

function optionsOf(latest: { current: Props }, element: HTMLElement): uPlot.Options {
  const { lines, band, hasTime, isLocal, height, onZoom, fromZero, isWhole, format } = latest.current
  const style = getComputedStyle(element)
  const color = (name: string) => style.getPropertyValue(name).trim()
  const axis: uPlot.Axis = {
    stroke: color('--muted'),
    font: FONT,
    grid: { stroke: color('--line'), width: 1 },
    ticks: { show: false },
  }
  return {
    width: Math.max(120, element.clientWidth),
    height,
    legend: { show: false },
    padding: [8, isLocal ? 24 : 8, 0, 0],
    cursor: {
      y: false,
      points: { size: 6 },
      drag: { x: onZoom !== undefined, y: false, setScale: false },
      bind: {
        dblclick: () => () => {
          latest.current.onZoom?.(null)
          return null
        },
      },
    },
    scales: {
      x: { time: hasTime },
      y: { range: (_, min, max) => rangeOf(min, max, fromZero ?? false) },
    },
    axes: [
      {
        ...axis,
        space: 70,
        size: hasTime && !isLocal ? 44 : 28,
        ...(hasTime ? { values: isLocal ? CLOCK : CALENDAR } : { incrs: WHOLE }),
      },
      {
        ...axis,
        size: 56,
        space: 32,
        values: (_, ticks) => ticks.map(format),
        ...(isWhole ? { incrs: WHOLE } : {}),
      },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.label,
        stroke: color(line.color),
        width: line.width ?? 1.5,
        ...(line.dash ? { dash: line.dash } : {}),
        points: { show: false },
        spanGaps: false,
      })),
    ],
    bands: band ? [{ series: band, fill: color('--band') }] : [],
    hooks: {
      drawClear: [(plot) => drawShades(plot, latest.current.shades ?? [], color)],
      setCursor: [(plot) => latest.current.onHover?.(plot.cursor.idx ?? null)],
      setSelect: [
        (plot) => {
          if (plot.select.width < 4) return
          const min = plot.posToVal(plot.select.left, 'x')
          const max = plot.posToVal(plot.select.left + plot.select.width, 'x')
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
          latest.current.onZoom?.([min, max])
        },
      ],
    },
    ...(isLocal ? {} : { tzDate: (seconds: number) => uPlot.tzDate(new Date(seconds * 1000), 'Etc/UTC') }),
  }
}

function rangeOf(min: number | null, max: number | null, fromZero: boolean): [number, number] {
  if (min === null || max === null) return [0, 1]
  const low = fromZero ? 0 : min
  const high = max > low ? max : low + 1
  const margin = 0.08 * (high - low)
  return [fromZero ? 0 : low - margin, high + margin]
}
