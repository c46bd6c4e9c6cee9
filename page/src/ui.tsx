/** Components that several tabs use. */

import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import type { Answer, ApiRequest } from './api'
import { curlOf, fileOf, pythonOf } from './commands'
import type { Column } from './csv'
import { milliseconds } from './format'
import { idOf, isDefault, type Model, type ModelList } from './models'
import type { Runner } from './requests'

export function Select(props: {
  label: string
  value: string
  options: { value: string; text: string }[]
  onChange: (value: string) => void
}) {
  const id = useId()
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <select id={id} value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
        {props.options.map(({ value, text }) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </div>
  )
}

export function ModelSelect(props: {
  list: ModelList | null
  models: Model[]
  value: string
  onChange: (value: string) => void
}) {
  const { list, models } = props
  const isMixed = models.some(({ task }) => task !== models[0]?.task)
  const options = models.map((model) => {
    const reads = isMixed && model.task === 'series-classification' ? ' for recordings' : ''
    const text = `${model.name} ${model.version}${reads}${list && isDefault(list, model) ? ' (default)' : ''}`
    return { value: idOf(model), text }
  })
  return (
    <Select
      label="Model"
      value={props.value}
      options={options.length ? options : [{ value: '', text: 'none is served' }]}
      onChange={props.onChange}
    />
  )
}

/** The names of the columns that are read from a file. */
export function Channels({ of }: { of: Column[] }) {
  return (
    <ul class="chips" aria-label="Channels">
      {of.map(({ name }) => (
        <li key={name}>{name}</li>
      ))}
    </ul>
  )
}

/** Pixels of a new answer that have to be in sight. */
const SEEN_PX = 240

/** An error with its countdown, or nothing. */
export function Failure({ of }: { of: Pick<Runner<unknown>, 'problem' | 'retryIn' | 'cancel'> }) {
  const { problem, retryIn, cancel } = of
  if (!problem) return null
  return (
    <div class="failure" role="alert">
      <strong>{problem.title}</strong>
      {problem.status > 0 && <span class="code">{problem.status}</span>}
      {problem.detail && <p>{problem.detail}</p>}
      {retryIn !== null && (
        <p class="countdown">
          <span aria-hidden="true">Trying again in {retryIn} s.</span>
          <button type="button" class="quiet" onClick={cancel}>
            Cancel
          </button>
        </p>
      )}
    </div>
  )
}

/** A card with an answer; the page scrolls to a new one that is out of sight. */
export function AnswerCard({ answer, children }: { answer: unknown; children: ComponentChildren }) {
  const card = useRef<HTMLDivElement>(null)
  useEffect(() => {
    if (answer && card.current && card.current.getBoundingClientRect().top > innerHeight - SEEN_PX)
      card.current.scrollIntoView({ block: 'start' })
  }, [answer])
  return (
    <div class="card result" ref={card}>
      {children}
    </div>
  )
}

/** Who answered, and how long it took. */
export function AnsweredBy({ answer }: { answer: Answer<{ model: string; version: number }> }) {
  const { data, timing } = answer
  return (
    <p class="by">
      {data.model} version {data.version}
      {timing.total !== undefined && ` · ${milliseconds(timing.total)}`}
      {timing.queue !== undefined && timing.compute !== undefined && (
        <>
          {' '}
          ({milliseconds(timing.compute)} computing, {milliseconds(timing.queue)} queued)
        </>
      )}
    </p>
  )
}

/** Buttons that copy the request of an answer. */
export function CopyRequest({ request }: { request: ApiRequest }) {
  const [said, setSaid] = useState('')
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined)
  useEffect(() => () => clearTimeout(timer.current), [])
  const copy = async (name: string, text: string) => {
    const isCopied = await toClipboard(text)
    setSaid(isCopied ? `${name} copied` : 'The browser does not allow copying')
    clearTimeout(timer.current)
    timer.current = setTimeout(() => setSaid(''), 2500)
  }
  const file = fileOf(request)
  const body = request.body
  return (
    <div class="copy">
      <button type="button" class="quiet" onClick={() => copy('curl', curlOf(request))}>
        Copy as curl
      </button>
      <button type="button" class="quiet" onClick={() => copy('Python', pythonOf(request))}>
        Copy as Python
      </button>
      {file && body && !('file' in body) && (
        <button type="button" class="quiet" onClick={() => save(file, body.content, body.type)}>
          Save {file}
        </button>
      )}
      <span role="status">{said}</span>
    </div>
  )
}

/** Copy a text. Pages without HTTPS have no clipboard API, except on the local machine. */
async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    const area = document.createElement('textarea')
    area.value = text
    document.body.append(area)
    area.select()
    const isCopied = document.execCommand('copy')
    area.remove()
    return isCopied
  }
}

/** Let the browser save a text as a file. */
export function save(name: string, content: string, type: string): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(new Blob([content], { type }))
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 1000)
}

/** An area on which files can be dropped. */
export function Drop(props: {
  label: string
  onFiles: (files: File[]) => void
  children: ComponentChildren
  class?: string
}) {
  const [depth, setDepth] = useState(0)
  const enter = (event: DragEvent) => {
    event.preventDefault()
    setDepth((old) => old + 1)
  }
  const drop = (event: DragEvent) => {
    event.preventDefault()
    setDepth(0)
    const files = [...(event.dataTransfer?.files ?? [])]
    if (files.length) props.onFiles(files)
  }
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: dropping is an addition to the button that chooses a file
    <div
      class={`drop ${props.class ?? ''} ${depth > 0 ? 'over' : ''}`}
      data-label={props.label}
      onDragEnter={enter}
      onDragOver={(event) => event.preventDefault()}
      onDragLeave={() => setDepth((old) => Math.max(0, old - 1))}
      onDrop={drop}
    >
      {props.children}
    </div>
  )
}

/** A button that opens the browser's dialog to choose files. */
export function ChooseFile(props: {
  text: string
  accept?: string
  multiple?: boolean
  onFiles: (files: File[]) => void
}) {
  const input = useRef<HTMLInputElement>(null)
  return (
    <>
      <button type="button" onClick={() => input.current?.click()}>
        {props.text}
      </button>
      <input
        ref={input}
        type="file"
        hidden
        accept={props.accept}
        multiple={props.multiple}
        onChange={(event) => {
          const files = [...(event.currentTarget.files ?? [])]
          event.currentTarget.value = ''
          if (files.length) props.onFiles(files)
        }}
      />
    </>
  )
}

/** Call `submit` on Ctrl+Enter or Cmd+Enter. */
export function onSubmitKey(submit: () => void) {
  return (event: KeyboardEvent) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault()
      submit()
    }
  }
}
