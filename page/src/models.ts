/** What `/v1/models` returns. */

export interface Result {
  metric: string
  value: number
  split: string
  examples: number
  condition: string
  seeds: number[]
  compared_with: string
  /** What others reached in the same metric and condition. */
  baselines: { name: string; value: number }[]
}

export interface ReliabilityBin {
  score: number
  accuracy: number
  examples: number
}

interface Common {
  name: string
  version: number
  ready: boolean
  results: Result[]
  training: {
    recipe: { name?: string; seed?: number }
    data: string
    device: string
    seconds: number
    examples_per_second: number
    peak_memory_bytes: number
    validation: { metric: string; value: number }
    revision: string
  }
  data_terms: string
  non_commercial: boolean
  limits: {
    body_bytes: number
    document_bytes: number
    documents: number
    rank_documents: number
    deadline_s: number
  }
}

export interface Classifier extends Common {
  task: 'text-classification'
  labels: string[]
  max_length: number
  window_overlap: number
  temperature: number
  reliability: ReliabilityBin[]
  /** Shares of known words that are normal; null if the model does not count words. */
  known: { low: number; median: number } | null
}

/** A classifier of recordings of several channels. */
export interface SeriesClassifier extends Common {
  task: 'series-classification'
  labels: string[]
  channels: string[]
  /** Steps that the model reads at once. */
  length: number
  window_overlap: number
  /** Steps per second of the training data; null if unknown. */
  rate: number | null
  temperature: number
  reliability: ReliabilityBin[]
}

export interface Matcher extends Common {
  task: 'text-matching'
  max_length: number
  window_overlap: number
}

/** A forecaster of the channels that it was trained on. */
export interface ChannelForecaster extends Common {
  task: 'forecasting'
  kind?: undefined
  channels: string[]
  context_length: number
  horizon: number
  min_observations: number
  frequency: string
  calibration_source: string
  calibration_examples: number
  quantiles_reliable: boolean
}

/** A forecaster of any series, each alone. */
export interface AnyForecaster extends Common {
  task: 'forecasting'
  kind: 'any-series'
  context_length: number
  horizon: number
  levels: number[]
  quantiles_reliable: boolean
}

export type Forecaster = ChannelForecaster | AnyForecaster
export type Model = Classifier | SeriesClassifier | Matcher | Forecaster
export type Task = Model['task']

export interface ModelList {
  models: Model[]
  defaults: Partial<Record<Task, { model: string; reason: string }>>
}

export const TASKS: Record<Task, string> = {
  'text-classification': 'Classification',
  'series-classification': 'Classification of series',
  'text-matching': 'Matching',
  forecasting: 'Forecasting',
}

export function modelsOf<T extends Task>(list: ModelList, task: T): Extract<Model, { task: T }>[] {
  return list.models.filter((model) => model.task === task) as Extract<Model, { task: T }>[]
}

/** Name that selects exactly this version. */
export function idOf(model: Model): string {
  return `${model.name}@${model.version}`
}

/** Whether requests that name no model are answered by this one. */
export function isDefault(list: ModelList, model: Model): boolean {
  const found = list.defaults[model.task]?.model
  if (found === idOf(model)) return true
  const versions = list.models.filter((other) => other.name === model.name).map((other) => other.version)
  return found === model.name && model.version === Math.max(...versions)
}

/** Models of a task, the default one first. */
export function choices<T extends Task>(list: ModelList | null, task: T): Extract<Model, { task: T }>[] {
  if (!list) return []
  const found = modelsOf(list, task)
  return [...found.filter((model) => isDefault(list, model)), ...found.filter((model) => !isDefault(list, model))]
}
