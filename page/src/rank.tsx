/** The tab that ranks documents for a query. */

import { useState } from 'preact/hooks'
import { Problem } from './api'
import { DOCUMENTS, QUERY } from './examples'
import { percent, plural, size } from './format'
import { choices, idOf, type ModelList } from './models'
import type { Coverage } from './parts'
import { useRequest } from './requests'
import { AnswerCard, AnsweredBy, ChooseFile, CopyRequest, Drop, Failure, ModelSelect, onSubmitKey } from './ui'

interface Response {
  model: string
  version: number
  results: { index: number; score: number; coverage: Coverage; cached: boolean }[]
  query_coverage: Coverage
}

/** A document of a file. */
interface Dropped {
  name: string
  text: string
}

const MAX_DOCUMENTS = 100

/** Documents of the field; blank lines separate them. */
export function split(text: string): string[] {
  return text
    .split(/\n\s*\n/)
    .map((part) => part.trim())
    .filter((part) => part !== '')
}

export function Rank({ list }: { list: ModelList | null }) {
  const models = choices(list, 'text-matching')
  const [chosen, setChosen] = useState('')
  const [query, setQuery] = useState('')
  const [pasted, setPasted] = useState('')
  const [dropped, setDropped] = useState<Dropped[]>([])
  const [sent, setSent] = useState<Dropped[]>([])
  const runner = useRequest<Response>()
  const model = models.find((each) => idOf(each) === chosen) ?? models[0]
  const documents = [...split(pasted).map((text) => ({ name: '', text })), ...dropped]

  const rank = (asked = query, texts = documents) => {
    if (!asked.trim()) return runner.fail(new Problem('There is no query', 'Enter one.'))
    if (texts.length === 0) return runner.fail(new Problem('There are no documents', 'Paste some, or drop files.'))
    if (texts.length > MAX_DOCUMENTS)
      return runner.fail(
        new Problem(
          'There are too many documents',
          `There are ${texts.length}; this page ranks up to ${MAX_DOCUMENTS}.`,
        ),
      )
    setSent(texts)
    const body = { query: asked, documents: texts.map(({ text }) => text), ...(model ? { model: idOf(model) } : {}) }
    return runner.run({ path: 'v1/rank', body: { type: 'application/json', content: JSON.stringify(body) } })
  }
  const openFiles = async (files: File[]) => {
    const limit = model?.limits.document_bytes
    const long = files.find((file) => limit !== undefined && file.size > limit)
    if (long && limit !== undefined)
      return runner.fail(
        new Problem('The file is too long', `${long.name} has ${size(long.size)}; the service takes ${size(limit)}.`),
      )
    const found = await Promise.all(files.map(async (file) => ({ name: file.name, text: await file.text() })))
    setDropped((old) => [...old, ...found])
  }
  const openExample = () => {
    setQuery(QUERY)
    setPasted(DOCUMENTS.join('\n\n'))
    setDropped([])
    rank(
      QUERY,
      DOCUMENTS.map((text) => ({ name: '', text })),
    )
  }

  return (
    <>
      <div class="intro">
        <h1>Rank documents</h1>
        <p>Order documents by how likely they belong with a query.</p>
      </div>
      <Drop label="Drop files to add them as documents" onFiles={openFiles} class="card">
        <div class="options">
          <ModelSelect list={list} models={models} value={model ? idOf(model) : ''} onChange={setChosen} />
        </div>
        <div class="columns">
          <div class="field">
            <label for="query">Query</label>
            <textarea
              id="query"
              rows={8}
              placeholder="A text, such as the abstract of a paper."
              value={query}
              onInput={(event) => setQuery(event.currentTarget.value)}
              onKeyDown={onSubmitKey(() => rank())}
            />
          </div>
          <div class="field">
            <label for="documents">Documents, separated by blank lines</label>
            <textarea
              id="documents"
              rows={8}
              placeholder={`Up to ${MAX_DOCUMENTS} documents. Each file that you drop is one more.`}
              value={pasted}
              onInput={(event) => setPasted(event.currentTarget.value)}
              onKeyDown={onSubmitKey(() => rank())}
            />
          </div>
        </div>
        {dropped.length > 0 && (
          <ul class="chips">
            {dropped.map(({ name }, index) => (
              <li key={index}>
                {name}
                <button
                  type="button"
                  aria-label={`Remove ${name}`}
                  onClick={() => setDropped(dropped.filter((_, other) => other !== index))}
                >
                  ×
                </button>
              </li>
            ))}
          </ul>
        )}
        <div class="actions">
          <button type="button" class="primary" disabled={runner.isRunning} onClick={() => rank()}>
            {runner.isRunning ? 'Ranking…' : 'Rank'}
          </button>
          <ChooseFile text="Add files" multiple onFiles={openFiles} />
          <span class="muted">{plural(documents.length, 'document')}</span>
        </div>
        <p class="examples">
          <span>Try</span>
          <button type="button" class="link" onClick={openExample}>
            abstracts of papers
          </button>
        </p>
      </Drop>
      <Failure of={runner} />
      {runner.answer && runner.request && (
        <AnswerCard answer={runner.answer}>
          <p class="summary" aria-live="polite">
            {plural(sent.length, 'document')}, best first.{' '}
            {knownText(runner.answer.data.results.filter(({ cached }) => cached).length, sent.length)}
          </p>
          <ol class="ranking">
            {runner.answer.data.results.map(({ index, score, coverage, cached }, place) => (
              <li key={index}>
                <span class="place">{place + 1}</span>
                <div>
                  <p class="document">{sent[index]?.text}</p>
                  <p class="by">
                    {sent[index]?.name || `document ${index + 1}`} · {plural(coverage.bytes_total, 'byte')}
                    {coverage.bytes_used < coverage.bytes_total && `, ${plural(coverage.bytes_used, 'byte')} read`}
                    {cached && <span class="badge">known</span>}
                  </p>
                </div>
                <span class="bar">
                  <i style={{ width: `${100 * score}%` }} />
                </span>
                <span class="value">{percent(score)}</span>
              </li>
            ))}
          </ol>
          <AnsweredBy answer={runner.answer} />
          <CopyRequest request={runner.request} />
        </AnswerCard>
      )}
    </>
  )
}

function knownText(known: number, all: number): string {
  if (known === 0) return 'None was known before, so each was encoded now.'
  if (known === all) return 'All were known before; only the scores were computed.'
  return `${known} ${known === 1 ? 'was' : 'were'} known before and not encoded again.`
}
