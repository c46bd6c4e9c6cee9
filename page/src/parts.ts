/** What each part of a document says: from windows and stretches of an answer to parts that do not overlap. */

import { percent } from './format'

export interface Score {
  label: string
  score: number
}

export interface Coverage {
  bytes_total: number
  bytes_used: number
  strategy: string
  windows: number
  /** Share of the words that the model knows; null if it does not count words. */
  known: number | null
}

export interface ClassifyResult {
  label: string
  score: number
  scores: Score[]
  coverage: Coverage
  windows: { start: number; end: number; scores: Score[] }[]
  stretches: { start: number; end: number; contributions: Record<string, number> }[]
}

/** A part of the document. */
export interface Part {
  start: number
  end: number
  /** How far it speaks for the label (positive) or for another one (negative); null if the model did not read it. */
  evidence: number | null
  /** |evidence| relative to the largest, from 0 to 1. */
  weight: number
  text: string
}

/** How `evidence` of the parts was found. */
export type Kind = 'windows' | 'stretches'

interface Span {
  start: number
  end: number
  value: number
}

/** Stretches if the model tells their contributions; else windows, which the service then returns as stretches, too. */
export function kindOf(result: ClassifyResult): Kind {
  return result.stretches.length > result.windows.length ? 'stretches' : 'windows'
}

/**
 * Parts of a document that together cover it, in order.
 *
 * The evidence of a window is the logarithm of the ratio between the score of the label and the best other score; windows
 * that overlap meet in the middle. The evidence of a stretch is its contribution to the logit of the label, minus the mean
 * over the other labels, per 256 bytes; overlapping stretches add up.
 */
export function partsOf(result: ClassifyResult, label: string, bytes: Uint8Array): Part[] {
  const kind = kindOf(result)
  const spans = kind === 'windows' ? windowSpans(result, label) : stretchSpans(result, label)
  const joined = join(spans, bytes.length)
  const largest = Math.max(...joined.map((part) => Math.abs(part.value ?? 0)), 1e-9)
  const decoder = decoderOf(bytes)
  return joined.map(({ start, end, value }) => ({
    start,
    end,
    evidence: value,
    weight: Math.abs(value ?? 0) / largest,
    text: decoder.decode(bytes.subarray(start, end), { stream: end < bytes.length }),
  }))
}

function windowSpans({ windows }: ClassifyResult, label: string): Span[] {
  return windows.map(({ start, end, scores }, index) => {
    const before = windows[index - 1]?.end ?? 0
    const after = windows[index + 1]?.start ?? Number.POSITIVE_INFINITY
    const own = scores.find((score) => score.label === label)?.score ?? 0
    const other = Math.max(...scores.filter((score) => score.label !== label).map((score) => score.score))
    return {
      start: before > start ? (before + start) >> 1 : start,
      end: after < end ? (after + end) >> 1 : end,
      value: Math.log((own + 1e-9) / (other + 1e-9)),
    }
  })
}

function stretchSpans({ stretches }: ClassifyResult, label: string): Span[] {
  return stretches.map(({ start, end, contributions }) => {
    const values = Object.values(contributions)
    const own = contributions[label] ?? 0
    const others = (values.reduce((sum, value) => sum + value, 0) - own) / Math.max(1, values.length - 1)
    return { start, end, value: ((own - others) * 256) / Math.max(1, end - start) }
  })
}

/** Cut overlapping spans at all of their borders; equal neighbours stay apart. */
function join(spans: Span[], total: number): { start: number; end: number; value: number | null }[] {
  const changes = new Map<number, { count: number; sum: number }>()
  const change = (at: number, by: number, value: number) => {
    const found = changes.get(at) ?? { count: 0, sum: 0 }
    changes.set(at, { count: found.count + by, sum: found.sum + by * value })
  }
  for (const { start, end, value } of spans) {
    change(start, 1, value)
    change(end, -1, value)
  }
  const borders = [...new Set([0, ...changes.keys(), total])].sort((a, b) => a - b)
  let number = 0
  let sum = 0
  return borders.slice(0, -1).map((start, index) => {
    const at = changes.get(start)
    number += at?.count ?? 0
    sum += at?.sum ?? 0
    return { start, end: borders[index + 1] ?? total, value: number === 0 ? null : sum }
  })
}

/** A decoder for the bytes: UTF-8, or Windows-1252 if they are not UTF-8. */
function decoderOf(bytes: Uint8Array): TextDecoder {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes)
    return new TextDecoder('utf-8', { ignoreBOM: true })
  } catch {
    return new TextDecoder('windows-1252')
  }
}

export function decode(bytes: Uint8Array): string {
  return decoderOf(bytes).decode(bytes)
}

/** How much was read and is known, in words. */
export function coverageText({ bytes_total, bytes_used, windows, known }: Coverage): string {
  const total = bytes_total.toLocaleString('en')
  const bytes = bytes_total === 1 ? 'byte was' : 'bytes were'
  const how = windows === 1 ? 'in one pass' : `in ${windows.toLocaleString('en')} overlapping windows`
  const read =
    bytes_used === bytes_total
      ? `All ${total} ${bytes} read, ${how}.`
      : `${bytes_used.toLocaleString('en')} of ${total} ${bytes} read; the hatched parts were not.`
  return known === null ? read : `${read} The model knows ${percent(known)} of the words.`
}
