/** The last minutes of `/metrics`, kept in the browser. */

import { useEffect, useState } from 'preact/hooks'
import { send } from './api'

/** Seconds that are kept and drawn. */
export const KEPT_S = 300
/** Rates and quantiles are those of the last seconds before each point. */
const RATE_S = 10
/** Seconds between two samples: while they are shown or the service is gone, and otherwise. */
const OFTEN_S = 2
const SELDOM_S = 10

/** Values of the metrics at one time. */
export interface Sample {
  /** Seconds of a monotonic clock. */
  at: number
  /** Seconds since 1970, for the time axis. */
  time: number
  series: Series[]
}

export interface Series {
  name: string
  labels: Record<string, string>
  value: number
}

export interface Live {
  samples: Sample[]
  /** Whether the service answered last; null before the first answer. */
  isUp: boolean | null
}

let live: Live = { samples: [], isUp: null }
let timer: ReturnType<typeof setTimeout> | undefined
let isWatched = false
const listeners = new Set<(live: Live) => void>()

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g

/** Parse Prometheus's text format; comments and families of other programs are skipped. */
export function parse(text: string): Series[] {
  const found: Series[] = []
  for (const line of text.split('\n')) {
    if (!line.startsWith('longdoc_')) continue
    const match = LINE.exec(line)
    if (!match?.[1]) continue
    const labels: Record<string, string> = {}
    for (const [, name, value] of (match[2] ?? '').matchAll(LABEL))
      if (name) labels[name] = (value ?? '').replace(/\\(.)/g, (_, char) => (char === 'n' ? '\n' : char))
    found.push({ name: match[1], labels, value: Number(match[3]) })
  }
  return found
}

/** Ask for metrics now, and then at intervals; hidden pages do not ask. */
export async function poll(): Promise<void> {
  clearTimeout(timer)
  if (!document.hidden) {
    try {
      const response = await send({ path: 'metrics' })
      const sample = { at: performance.now() / 1000, time: Date.now() / 1000, series: parse(await response.text()) }
      const samples = [...live.samples.filter(({ at }) => sample.at - at <= KEPT_S + RATE_S), sample]
      publish({ samples, isUp: true })
    } catch {
      publish({ ...live, isUp: false })
    }
  }
  clearTimeout(timer)
  timer = setTimeout(poll, 1000 * (isWatched || live.isUp === false ? OFTEN_S : SELDOM_S))
}

function publish(next: Live): void {
  live = next
  for (const listener of listeners) listener(live)
}

/** Say whether the metrics are shown. */
export function watch(isShown: boolean): void {
  const isNew = isShown && !isWatched
  isWatched = isShown
  if (isNew) void poll()
}

/** The metrics; the component is rendered again when they change. */
export function useLive(): Live {
  const [state, setState] = useState(live)
  useEffect(() => {
    setState(live)
    listeners.add(setState)
    return () => void listeners.delete(setState)
  }, [])
  return state
}

function matches(series: Series, name: string, labels: Record<string, string>): boolean {
  return series.name === name && Object.entries(labels).every(([label, value]) => series.labels[label] === value)
}

/** Sum over the series of a metric with these labels; null if there is none. */
export function total(sample: Sample | undefined, name: string, labels: Record<string, string> = {}): number | null {
  const values = (sample?.series ?? []).filter((series) => matches(series, name, labels)).map(({ value }) => value)
  return values.length ? values.reduce((sum, value) => sum + value, 0) : null
}

/** A curve: one value for each sample, null where nothing happened. */
export type Curve = (number | null)[]

/** Compare each sample with the one at least RATE_S earlier, or with the first one. */
function overPairs(samples: Sample[], value: (before: Sample, after: Sample) => number | null): Curve {
  let first = 0
  return samples.map((sample, index) => {
    if (index === 0) return null
    while (first + 1 < index && sample.at - (samples[first + 1]?.at ?? 0) >= RATE_S) first += 1
    const before = samples[first]
    return before ? value(before, sample) : null
  })
}

/** Increase of a counter; a counter that fell was restarted. */
function increase(before: Sample, after: Sample, name: string, labels: Record<string, string>): number {
  const now = total(after, name, labels) ?? 0
  const then = total(before, name, labels) ?? 0
  return now >= then ? now - then : now
}

export function rate(samples: Sample[], name: string, labels: Record<string, string>): Curve {
  return overPairs(samples, (before, after) => increase(before, after, name, labels) / (after.at - before.at))
}

/** Mean of the observations of a histogram. */
export function mean(samples: Sample[], name: string, labels: Record<string, string>): Curve {
  return overPairs(samples, (before, after) => {
    const observed = increase(before, after, `${name}_count`, labels)
    return observed > 0 ? increase(before, after, `${name}_sum`, labels) / observed : null
  })
}

export function gauge(samples: Sample[], name: string, labels: Record<string, string>): Curve {
  return samples.map((sample) => total(sample, name, labels))
}

/** Quantile of a histogram's observations, interpolated within its bucket as Prometheus does. */
export function quantile(samples: Sample[], name: string, labels: Record<string, string>, level: number): Curve {
  const bucket = `${name}_bucket`
  const bounds = [
    ...new Set((samples.at(-1)?.series ?? []).filter((s) => s.name === bucket).map((s) => s.labels.le ?? '')),
  ]
  return overPairs(samples, (before, after) => {
    const counts = bounds
      .map((le) => ({ le: le === '+Inf' ? Number.POSITIVE_INFINITY : Number(le), le_: le }))
      .sort((a, b) => a.le - b.le)
      .map(({ le, le_ }) => ({ le, below: increase(before, after, bucket, { ...labels, le: le_ }) }))
    return quantileOf(counts, level)
  })
}

/** Quantile from cumulative counts, by upper bound of the bucket; null without observations. */
export function quantileOf(counts: { le: number; below: number }[], level: number): number | null {
  const observed = counts.at(-1)?.below ?? 0
  if (observed <= 0) return null
  const rank = level * observed
  let lower = { le: 0, below: 0 }
  for (const upper of counts) {
    if (upper.below >= rank) {
      if (!Number.isFinite(upper.le)) return lower.le
      const inside = upper.below - lower.below
      return inside > 0 ? lower.le + ((upper.le - lower.le) * (rank - lower.below)) / inside : upper.le
    }
    lower = upper
  }
  return lower.le
}
