/**
 * What each part of a document or recording says: from windows and stretches of an answer to parts that do not overlap.
 */

import { count, percent, plural } from './format'

export interface Score {
  label: string
  score: number
  /** Score from which the label applies, if a document may have any number of labels. */
  threshold?: number
}

export interface Coverage {
  bytes_total: number
  bytes_used: number
  strategy: string
  windows: number
  /** Share of the words that the model knows; null if it does not count words. */
  known: number | null
}

interface Stretch {
  start: number
  end: number
  contributions: Record<string, number>
}

interface Labelled {
  label: string
  score: number
  /** The labels that apply, if a document may have any number of them. */
  labels?: string[]
  scores: Score[]
  stretches: Stretch[]
}

/** Of a document. */
export interface DocumentResult extends Labelled {
  coverage: Coverage
  windows: { start: number; end: number; scores: Score[] }[]
}

export interface RecordingCoverage {
  observations_total: number
  observations_used: number
  imputed: number
  windows: number
  resampled: boolean
}

/** Of a recording. */
export interface RecordingResult extends Labelled {
  coverage: RecordingCoverage
}

export type ClassifyResult = DocumentResult | RecordingResult

export function isRecording(result: ClassifyResult): result is RecordingResult {
  return 'observations_total' in result.coverage
}

/** What a part of the input says. */
export interface Weighed<V extends number | null> {
  start: number
  end: number
  /** How far it speaks for the label (positive) or for another one (negative); null if the model did not read it. */
  evidence: V
  /** |evidence| relative to the largest, from 0 to 1. */
  weight: number
}

/** A part of the document. */
export interface Part extends Weighed<number | null> {
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
export function kindOf(result: DocumentResult): Kind {
  return result.stretches.length > result.windows.length ? 'stretches' : 'windows'
}

/**
 * Parts of a document that together cover it, in order.
 *
 * The evidence of a window is the logarithm of the ratio between the score of the label and the best other score; windows
 * that overlap meet in the middle. The evidence of a stretch is its contribution to the logit of the label, minus the mean
 * over the other labels, per 256 bytes; overlapping stretches add up. If a document may have any number of labels, no
 * other label counts: the evidence of a window is the logit of the label, and that of a stretch its contribution.
 */
export function partsOf(result: DocumentResult, label: string, bytes: Uint8Array): Part[] {
  const kind = kindOf(result)
  const spans = kind === 'windows' ? windowSpans(result, label) : stretchSpans(result, label)
  const decoder = decoderOf(bytes)
  return weighed(join(spans, bytes.length)).map((part) => ({
    ...part,
    text: decoder.decode(bytes.subarray(part.start, part.end), { stream: part.end < bytes.length }),
  }))
}

/** Stretches of a recording, from step to step; the evidence is the contribution, as that of a document's stretch. */
export function stretchesOf({ stretches }: RecordingResult, label: string): Weighed<number>[] {
  return weighed(
    stretches.map(({ start, end, contributions }) => ({ start, end, value: margin(contributions, label) })),
  )
}

function weighed<V extends number | null>(spans: { start: number; end: number; value: V }[]): Weighed<V>[] {
  const largest = Math.max(...spans.map(({ value }) => Math.abs(value ?? 0)), 1e-9)
  return spans.map(({ start, end, value }) => ({
    start,
    end,
    evidence: value,
    weight: Math.abs(value ?? 0) / largest,
  }))
}

/** Contribution to the logit of a label, minus the mean over the other labels of which a document has one. */
function margin(contributions: Record<string, number>, label: string, hasOneLabel = true): number {
  if (!hasOneLabel) return contributions[label] ?? 0
  const values = Object.values(contributions)
  const own = contributions[label] ?? 0
  return own - (values.reduce((sum, value) => sum + value, 0) - own) / Math.max(1, values.length - 1)
}

function windowSpans({ windows, labels }: DocumentResult, label: string): Span[] {
  return windows.map(({ start, end, scores }, index) => {
    const before = windows[index - 1]?.end ?? 0
    const after = windows[index + 1]?.start ?? Number.POSITIVE_INFINITY
    const own = scores.find((score) => score.label === label)?.score ?? 0
    const others = scores.filter((score) => score.label !== label).map((score) => score.score)
    const other = labels ? 1 - own : Math.max(...others)
    return {
      start: before > start ? (before + start) >> 1 : start,
      end: after < end ? (after + end) >> 1 : end,
      value: Math.log((own + 1e-9) / (other + 1e-9)),
    }
  })
}

function stretchSpans({ stretches, labels }: DocumentResult, label: string): Span[] {
  return stretches.map(({ start, end, contributions }) => ({
    start,
    end,
    value: (margin(contributions, label, !labels) * 256) / Math.max(1, end - start),
  }))
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

/** How far a part speaks for a label, in words. */
export function evidenceText(evidence: number, label: string): string {
  return `${evidence >= 0 ? '+' : '−'}${Math.abs(evidence).toFixed(2)} for ${label}`
}

/** The label that speaks against: the only other one, or any other. */
export function rivalOf({ scores, labels }: ClassifyResult, label: string): string {
  if (labels) return 'the opposite'
  const others = scores.filter((score) => score.label !== label)
  return others.length === 1 ? (others[0]?.label ?? '') : 'another label'
}

/** Opacity of a weight: weak evidence stays visible. */
export function shade(weight: number): number {
  return weight === 0 ? 0 : Number((0.08 + 0.92 * weight ** 0.8).toFixed(3))
}

/** How much was read and is known, or imputed, in words. */
export function coverageText(result: ClassifyResult): string {
  if (!isRecording(result)) {
    const { bytes_total, bytes_used, windows, known } = result.coverage
    const read = readText(bytes_used, bytes_total, 'byte', windows, '; the hatched parts were not')
    return known === null ? read : `${read} The model knows ${percent(known)} of the words.`
  }
  const { observations_total, observations_used, imputed, windows, resampled } = result.coverage
  return [
    readText(observations_used, observations_total, 'value', windows, ''),
    ...(imputed > 0 ? [`${plural(imputed, 'missing value')} ${imputed === 1 ? 'was' : 'were'} imputed.`] : []),
    ...(resampled ? ['The recording was resampled to the rate of the model.'] : []),
  ].join(' ')
}

function readText(used: number, total: number, unit: string, windows: number, rest: string): string {
  const all = `${plural(total, unit)} ${total === 1 ? 'was' : 'were'} read`
  const how = windows === 1 ? 'in one pass' : `in ${count(windows)} overlapping windows`
  return used === total ? `All ${all}, ${how}.` : `${count(used)} of ${all}${rest}.`
}
