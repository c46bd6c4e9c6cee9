/** The tab that classifies a document or a recording and shows which parts decided. */

import type { ComponentChildren } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'
import { type ApiRequest, Problem } from './api'
import { CsvError, MAX_BYTES, namesOf, type Recording, readRecording } from './csv'
import { EXAMPLES, type Example } from './examples'
import { percent, plural, size } from './format'
import { type Classifier, choices, idOf, type ModelList, type SeriesClassifier } from './models'
import { type ClassifyResult, coverageText, type DocumentResult, decode, isRecording, kindOf, partsOf } from './parts'
import { RecordingEvidence } from './recording'
import { useRequest } from './requests'
import { Evidence } from './strip'
import {
  AnswerCard,
  AnsweredBy,
  Channels,
  ChooseFile,
  CopyRequest,
  Drop,
  Failure,
  ModelSelect,
  onSubmitKey,
  Select,
} from './ui'

interface Response {
  model: string
  version: number
  results: [ClassifyResult]
}

/** What is classified: what the field contains, or the bytes of a file, which a field would change. */
type Input = { text: string } | { file: string; bytes: Uint8Array<ArrayBuffer> }

const OVERFLOW = [
  { value: 'windows', text: 'read completely' },
  { value: 'head', text: 'read the start' },
  { value: 'tail', text: 'read the end' },
]
const LISTED = 5
/** Part of a file in which its first line is looked for. */
const HEAD_BYTES = 65_536

type AnyClassifier = Classifier | SeriesClassifier

/** What the tab says about each kind of input. */
const WORDS = {
  document: {
    decided: 'which parts of the document',
    placeholder: 'Paste a document, or drop a file here.',
    missing: 'Paste one, or choose a file.',
  },
  recording: {
    decided: 'which stretch of time',
    placeholder: 'Paste a CSV with a column for each channel and a line for each step, or drop a file here.',
    missing: 'Paste a CSV, or choose a file.',
  },
}

export function Classify({ list, isShown }: { list: ModelList | null; isShown: boolean }) {
  const models: AnyClassifier[] = [...choices(list, 'text-classification'), ...choices(list, 'series-classification')]
  const [input, setInput] = useState<Input>({ text: '' })
  const [chosen, setChosen] = useState('')
  const [overflow, setOverflow] = useState('windows')
  const [rate, setRate] = useState('')
  const runner = useRequest<Response>()
  const model = models.find((each) => idOf(each) === chosen || each.name === chosen) ?? models[0]
  const series = seriesClassifier(model)
  const noun = series ? 'recording' : 'document'

  const submit = (content: Input, reader = model) => {
    if (bytesOf(content).length === 0) return runner.fail(new Problem(`There is no ${noun}`, WORDS[noun].missing))
    const recorder = seriesClassifier(reader)
    return recorder ? classifyRecording(content, recorder) : classify(content, reader && idOf(reader))
  }
  const classifyRecording = (content: Input, reader: SeriesClassifier) => {
    let recording: Recording
    try {
      recording = readRecording(decode(bytesOf(content)), reader.channels)
    } catch (error) {
      if (!(error instanceof CsvError)) throw error
      const name = 'file' in content ? content.file : 'The text'
      return runner.fail(new Problem(`${name} cannot be read as a recording`, error.message))
    }
    const body = JSON.stringify({
      model: idOf(reader),
      series: Object.fromEntries(recording.columns.map(({ name, values }) => [name, values])),
      ...(rate && reader.rate !== null ? { rate: Number(rate) } : {}),
      ...(overflow === 'windows' ? {} : { on_overflow: overflow }),
      detail: true,
    })
    return runner.run({ path: 'v1/classify', body: { type: 'application/json', content: body } })
  }
  const classify = (document: Input, name: string | undefined) => {
    const query: Record<string, string> = { detail: 'true' }
    if (name) query.model = name
    if (overflow !== 'windows') query.on_overflow = overflow
    const body: ApiRequest['body'] =
      'file' in document
        ? { type: 'application/octet-stream', content: document.bytes, file: document.file }
        : { type: 'text/plain', content: document.text }
    return runner.run({ path: 'v1/classify', query, body })
  }
  const openFile = async ([file]: File[]) => {
    if (!file) return
    const names = namesOf(await file.slice(0, HEAD_BYTES).text())
    const able = models.filter((each) => seriesClassifier(each)?.channels.every((channel) => names.includes(channel)))
    const reader = model && able.includes(model) ? model : (able[0] ?? model)
    const limit = seriesClassifier(reader) ? MAX_BYTES : reader?.limits.document_bytes
    if (limit !== undefined && file.size > limit) {
      const taker = seriesClassifier(reader) ? 'this page reads' : 'the service takes'
      return runner.fail(
        new Problem('The file is too long', `${file.name} has ${size(file.size)}; ${taker} ${size(limit)}.`),
      )
    }
    const opened = { file: file.name, bytes: new Uint8Array(await file.arrayBuffer()) }
    setInput(opened)
    if (reader) setChosen(idOf(reader))
    submit(opened, reader)
  }
  const open = (example: Example) => {
    const opened = { text: example.text() }
    const fitting = models.find((each) => each.name === example.model)
    const name = fitting ? idOf(fitting) : example.model // the list of models may not have arrived
    setInput(opened)
    setChosen(name)
    classify(opened, name)
  }
  const examples = EXAMPLES.filter(({ model: name }) => !list || models.some((each) => each.name === name))

  return (
    <>
      <div class="intro">
        <h1>Classify a {noun}</h1>
        <p>See its label, how sure the model is, and {WORDS[noun].decided} decided.</p>
      </div>
      <Drop label="Drop a file to classify it" onFiles={openFile} class="card">
        <div class="options">
          <ModelSelect list={list} models={models} value={model ? idOf(model) : ''} onChange={setChosen} />
          <Select label={`Long ${noun}s`} value={overflow} options={OVERFLOW} onChange={setOverflow} />
          {series && series.rate !== null && (
            <div class="field">
              <label for="rate">Steps per second</label>
              <input
                id="rate"
                type="number"
                min={0}
                step="any"
                placeholder={String(series.rate)}
                value={rate}
                onInput={(event) => setRate(event.currentTarget.value)}
                onKeyDown={onSubmitKey(() => submit(input))}
              />
            </div>
          )}
        </div>
        {'file' in input ? (
          <FileView
            file={input.file}
            bytes={input.bytes}
            channels={series?.channels ?? null}
            onRemove={() => setInput({ text: '' })}
          />
        ) : (
          <textarea
            rows={8}
            aria-label={series ? 'Recording as CSV' : 'Document'}
            placeholder={WORDS[noun].placeholder}
            value={input.text}
            onInput={(event) => setInput({ text: event.currentTarget.value })}
            onKeyDown={onSubmitKey(() => submit(input))}
          />
        )}
        <div class="actions">
          <button type="button" class="primary" disabled={runner.isRunning} onClick={() => submit(input)}>
            {runner.isRunning ? 'Classifying…' : 'Classify'}
          </button>
          <ChooseFile text="Choose a file" onFiles={openFile} />
          <span class="muted">{plural(bytesOf(input).length, 'byte')}</span>
        </div>
        {!series && examples.length > 0 && (
          <p class="examples">
            <span>Try</span>
            {examples.map((example) => (
              <button key={example.name} type="button" class="link" onClick={() => open(example)}>
                {example.name}
              </button>
            ))}
          </p>
        )}
      </Drop>
      <Failure of={runner} />
      {runner.answer && runner.request && (
        <AnswerCard answer={runner.answer}>
          <Result
            data={runner.answer.data.results[0]}
            request={runner.request}
            normal={normalOf(models, runner.answer.data)}
            isShown={isShown}
          >
            <AnsweredBy answer={runner.answer} />
            <CopyRequest request={runner.request} />
          </Result>
        </AnswerCard>
      )}
    </>
  )
}

function seriesClassifier(model: AnyClassifier | undefined): SeriesClassifier | null {
  return model?.task === 'series-classification' ? model : null
}

/** Shares of known words that are normal for the model that gave an answer, if it is still served and counts words. */
function normalOf(models: AnyClassifier[], { model, version }: Response): Classifier['known'] {
  const found = models.find((each) => each.name === model && each.version === version)
  return found?.task === 'text-classification' ? found.known : null
}

interface ResultProps {
  data: ClassifyResult
  request: ApiRequest
  normal: Classifier['known']
  isShown: boolean
  children: ComponentChildren
}

function Result(props: ResultProps) {
  const { data, request, normal } = props
  const known = isRecording(data) ? null : data.coverage.known
  const [label, setLabel] = useState(data.label)
  const [isLong, setLong] = useState(false)
  useEffect(() => setLabel(data.label), [data])
  const shown = data.scores.some((score) => score.label === label) ? label : data.label
  const scores = isLong ? data.scores : data.scores.slice(0, LISTED)
  return (
    <>
      <div class="verdict">
        <div>
          <p class="kicker">{data.labels ? 'Labels' : 'Label'}</p>
          <h2 aria-live="polite">{data.labels ? data.labels.join(', ') || 'none' : data.label}</h2>
          {!data.labels && <p class="probability">{percent(data.score)}</p>}
          <p class="coverage">{coverageText(data)}</p>
          {known !== null && normal !== null && known < normal.low && (
            <p class="warning" role="note">
              That is less than in 99 % of the documents that the model was made for: this may be noise, another
              language, another kind of text or a wrong encoding.
            </p>
          )}
          {props.children}
        </div>
        <div>
          <p class="kicker">Calibrated probabilities</p>
          <ul class="scores">
            {scores.map((score) => (
              <li key={score.label}>
                <button
                  type="button"
                  class={data.labels?.includes(score.label) ? 'chosen' : undefined}
                  aria-pressed={score.label === shown}
                  title={`Show what speaks for ${score.label}`}
                  onClick={() => setLabel(score.label)}
                >
                  <span class="name">{score.label}</span>
                  <span class="bar">
                    <i style={{ width: `${100 * score.score}%` }} />
                    {score.threshold !== undefined && (
                      <b
                        class="threshold"
                        style={{ left: `${100 * score.threshold}%` }}
                        title={`applies from ${percent(score.threshold)}`}
                      />
                    )}
                  </span>
                  <span class="value">{percent(score.score)}</span>
                </button>
              </li>
            ))}
          </ul>
          {data.scores.length > LISTED && (
            <button type="button" class="link" onClick={() => setLong(!isLong)}>
              {isLong ? 'Show fewer' : `Show all ${data.scores.length} labels`}
            </button>
          )}
        </div>
      </div>
      <h3 class="kicker">Which part decided</h3>
      {isRecording(data) ? (
        <RecordingEvidence result={data} request={request} label={shown} isShown={props.isShown} />
      ) : (
        <DocumentEvidence data={data} request={request} label={shown} />
      )}
    </>
  )
}

function DocumentEvidence({ data, request, label }: { data: DocumentResult; request: ApiRequest; label: string }) {
  const bytes = useMemo(() => sentBytes(request), [request])
  const parts = useMemo(() => partsOf(data, label, bytes), [data, label, bytes])
  return <Evidence parts={parts} kind={kindOf(data)} label={label} result={data} />
}

interface FileProps {
  file: string
  bytes: Uint8Array
  /** Those of the model; null if it reads documents. */
  channels: string[] | null
  onRemove: () => void
}

function FileView({ file, bytes, channels, onRemove }: FileProps) {
  const recording = useMemo(() => channels && recordingOf(bytes, channels), [bytes, channels])
  const text = useMemo(() => decode(bytes.subarray(0, 600)), [bytes])
  return (
    <div class="file">
      <p>
        <strong>{file}</strong>
        {recording && <span>{plural(recording.columns[0]?.values.length ?? 0, 'step')}</span>}
        <button type="button" class="quiet" onClick={onRemove}>
          Remove
        </button>
      </p>
      {recording ? <Channels of={recording.columns} /> : <p class="excerpt">{text}</p>}
      {recording && recording.leftOut.length > 0 && (
        <p class="note">Not channels, so not used: {recording.leftOut.join(', ')}.</p>
      )}
    </div>
  )
}

/** The recording of a file; null if it cannot be read. */
function recordingOf(bytes: Uint8Array, channels: string[]): Recording | null {
  try {
    return readRecording(decode(bytes), channels)
  } catch {
    return null
  }
}

const encoder = new TextEncoder()

function bytesOf(input: Input): Uint8Array {
  return 'file' in input ? input.bytes : encoder.encode(input.text)
}

/** The document of a request. */
function sentBytes({ body }: ApiRequest): Uint8Array {
  const content = body?.content ?? ''
  return typeof content === 'string' ? encoder.encode(content) : content
}
