/** The tab that classifies a document and shows which parts decided. */

import type { ComponentChildren } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'
import { type ApiRequest, Problem } from './api'
import { EXAMPLES, type Example } from './examples'
import { percent, plural, size } from './format'
import { type Classifier, choices, idOf, type ModelList } from './models'
import { type ClassifyResult, coverageText, decode, kindOf, partsOf } from './parts'
import { useRequest } from './requests'
import { Evidence } from './strip'
import { AnswerCard, AnsweredBy, ChooseFile, CopyRequest, Drop, Failure, ModelSelect, onSubmitKey, Select } from './ui'

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

export function Classify({ list }: { list: ModelList | null }) {
  const models = choices(list, 'text-classification')
  const [input, setInput] = useState<Input>({ text: '' })
  const [chosen, setChosen] = useState('')
  const [overflow, setOverflow] = useState('windows')
  const runner = useRequest<Response>()
  const [sent, setSent] = useState<Uint8Array>(new Uint8Array())
  const model = models.find((each) => idOf(each) === chosen || each.name === chosen) ?? models[0]
  const limit = model?.limits.document_bytes

  const classify = (document: Input, name = model ? idOf(model) : undefined) => {
    const bytes = bytesOf(document)
    if (bytes.length === 0) return runner.fail(new Problem('There is no document', 'Paste one, or choose a file.'))
    const query: Record<string, string> = { detail: 'true' }
    if (name) query.model = name
    if (overflow !== 'windows') query.on_overflow = overflow
    const body: ApiRequest['body'] =
      'file' in document
        ? { type: 'application/octet-stream', content: document.bytes, file: document.file }
        : { type: 'text/plain', content: document.text }
    setSent(bytes)
    return runner.run({ path: 'v1/classify', query, body })
  }
  const openFile = async ([file]: File[]) => {
    if (!file) return
    if (limit !== undefined && file.size > limit)
      return runner.fail(
        new Problem('The file is too long', `${file.name} has ${size(file.size)}; the service takes ${size(limit)}.`),
      )
    const opened = { file: file.name, bytes: new Uint8Array(await file.arrayBuffer()) }
    setInput(opened)
    classify(opened)
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
        <h1>Classify a document</h1>
        <p>See its label, how sure the model is, and which parts of the document decided.</p>
      </div>
      <Drop label="Drop a file to classify it" onFiles={openFile} class="card">
        <div class="options">
          <ModelSelect list={list} models={models} value={model ? idOf(model) : ''} onChange={setChosen} />
          <Select label="Long documents" value={overflow} options={OVERFLOW} onChange={setOverflow} />
        </div>
        {'file' in input ? (
          <FileView file={input.file} bytes={input.bytes} onRemove={() => setInput({ text: '' })} />
        ) : (
          <textarea
            rows={8}
            aria-label="Document"
            placeholder="Paste a document, or drop a file here."
            value={input.text}
            onInput={(event) => setInput({ text: event.currentTarget.value })}
            onKeyDown={onSubmitKey(() => classify(input))}
          />
        )}
        <div class="actions">
          <button type="button" class="primary" disabled={runner.isRunning} onClick={() => classify(input)}>
            {runner.isRunning ? 'Classifying…' : 'Classify'}
          </button>
          <ChooseFile text="Choose a file" onFiles={openFile} />
          <span class="muted">{plural(bytesOf(input).length, 'byte')}</span>
        </div>
        {examples.length > 0 && (
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
            bytes={sent}
            normal={answering(models, runner.answer.data)?.known ?? null}
          >
            <AnsweredBy answer={runner.answer} />
            <CopyRequest request={runner.request} />
          </Result>
        </AnswerCard>
      )}
    </>
  )
}

/** The model that gave an answer, if it is still served. */
function answering(models: Classifier[], { model, version }: Response): Classifier | undefined {
  return models.find((each) => each.name === model && each.version === version)
}

interface ResultProps {
  data: ClassifyResult
  bytes: Uint8Array
  normal: Classifier['known']
  children: ComponentChildren
}

function Result(props: ResultProps) {
  const { data, bytes, normal } = props
  const { known } = data.coverage
  const [label, setLabel] = useState(data.label)
  const [isLong, setLong] = useState(false)
  useEffect(() => setLabel(data.label), [data])
  const shown = data.scores.some((score) => score.label === label) ? label : data.label
  const parts = useMemo(() => partsOf(data, shown, bytes), [data, shown, bytes])
  const scores = isLong ? data.scores : data.scores.slice(0, LISTED)
  return (
    <>
      <div class="verdict">
        <div>
          <p class="kicker">Label</p>
          <h2 aria-live="polite">{data.label}</h2>
          <p class="probability">{percent(data.score)}</p>
          <p class="coverage">{coverageText(data.coverage)}</p>
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
                  aria-pressed={score.label === shown}
                  title={`Show what speaks for ${score.label}`}
                  onClick={() => setLabel(score.label)}
                >
                  <span class="name">{score.label}</span>
                  <span class="bar">
                    <i style={{ width: `${100 * score.score}%` }} />
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
      <Evidence parts={parts} kind={kindOf(data)} label={shown} result={data} />
    </>
  )
}

function FileView({ file, bytes, onRemove }: { file: string; bytes: Uint8Array; onRemove: () => void }) {
  const text = useMemo(() => decode(bytes.subarray(0, 600)), [bytes])
  return (
    <div class="file">
      <p>
        <strong>{file}</strong>
        <button type="button" class="quiet" onClick={onRemove}>
          Remove
        </button>
      </p>
      <p class="excerpt">{text}</p>
    </div>
  )
}

const encoder = new TextEncoder()

function bytesOf(input: Input): Uint8Array {
  return 'file' in input ? input.bytes : encoder.encode(input.text)
}
