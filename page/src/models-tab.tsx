/** The tab that shows what is served. */

import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { Problem, send } from './api'
import { count, number, percent, plural, seconds, size } from './format'
import { type Live, total, useLive } from './metrics'
import {
  choices,
  idOf,
  isDefault,
  type Model,
  type ModelList,
  type ReliabilityBin,
  type Result,
  TASKS,
  type Task,
} from './models'
import { CopyRequest } from './ui'

export function ModelsTab({ list }: { list: ModelList | null }) {
  const live = useLive()
  const [chosen, setChosen] = useState('')
  const tasks = (Object.keys(TASKS) as Task[]).filter((task) => choices(list, task).length > 0)
  const all: Model[] = tasks.flatMap((task): Model[] => choices(list, task))
  const model = all.find((each) => idOf(each) === chosen) ?? all[0]
  return (
    <>
      <div class="intro">
        <h1>Models</h1>
        <p>What is served, what was measured, and what each model is doing now.</p>
      </div>
      {!list && <p class="muted">The models are not known yet.</p>}
      {list && model && (
        <div class="split">
          <nav class="menu" aria-label="Served models">
            {tasks.map((task) => (
              <div key={task}>
                <h2 class="kicker">{TASKS[task]}</h2>
                <ul>
                  {choices(list, task).map((each: Model) => (
                    <li key={idOf(each)}>
                      <button type="button" aria-current={each === model} onClick={() => setChosen(idOf(each))}>
                        <span class={`dot ${each.ready ? 'ready' : 'down'}`} />
                        {each.name}
                        <span class="muted">{each.version}</span>
                        {isDefault(list, each) && <span class="badge">default</span>}
                      </button>
                    </li>
                  ))}
                </ul>
              </div>
            ))}
          </nav>
          <Details key={idOf(model)} model={model} isDefault={isDefault(list, model)} live={live} />
        </div>
      )}
    </>
  )
}

function Details({ model, isDefault, live }: { model: Model; isDefault: boolean; live: Live }) {
  const sample = live.samples.at(-1)
  const value = (name: string) => total(sample, `longdoc_${name}`, { model: model.name })
  const shown = (found: number | null, text: (value: number) => string) => (found === null ? '–' : text(found))
  const info = (sample?.series ?? []).find(
    ({ name, labels }) =>
      name === 'longdoc_model_info' && labels.model === model.name && labels.version === String(model.version),
  )?.labels
  const { training, limits } = model
  return (
    <article class="card details">
      <h2>
        {model.name} <span class="muted">version {model.version}</span>
      </h2>
      <p class="by">
        {TASKS[model.task]} · {model.ready ? 'ready' : 'not ready'}
        {isDefault && ' · answers requests that name no model'}
        {model.non_commercial && <span class="badge">non-commercial</span>}
      </p>

      <dl class="figures">
        <Figure name="queued rows">{shown(value('queue_depth'), count)}</Figure>
        <Figure name="requests in flight">{shown(value('requests_in_flight'), count)}</Figure>
        <Figure name="answered">{shown(value('documents_total'), count)}</Figure>
        <Figure name="loaded in">{shown(value('model_load_seconds'), seconds)}</Figure>
      </dl>

      <h3 class="kicker">Reads</h3>
      <dl class="facts">
        <Limits model={model} />
        <Fact name="Body">up to {size(limits.body_bytes)}</Fact>
        <Fact name="Deadline">{seconds(limits.deadline_s)}</Fact>
        {info && (
          <Fact name="Runtime">
            {info.format}, {info.device}, {info.precision}
          </Fact>
        )}
      </dl>

      <h3 class="kicker">Measured</h3>
      <Results results={model.results} />
      {'reliability' in model && model.reliability.length > 0 && (
        <>
          <h3 class="kicker">Reliability</h3>
          <Reliability bins={model.reliability} />
        </>
      )}

      <h3 class="kicker">Training</h3>
      <dl class="facts">
        <Fact name="Recipe">
          {training.recipe.name ?? '–'}, seed {training.recipe.seed ?? '–'}
        </Fact>
        <Fact name="Data">{training.data}</Fact>
        <Fact name="Time">
          {seconds(training.seconds)} on {training.device}
        </Fact>
        <Fact name="Throughput">{number(training.examples_per_second)} examples/s</Fact>
        <Fact name="Memory">{size(training.peak_memory_bytes)} at most</Fact>
        <Fact name="Validation">
          {training.validation.metric} {number(training.validation.value)}
        </Fact>
        <Fact name="Revision">
          <code>{training.revision}</code>
        </Fact>
        <Fact name="Data terms">{model.data_terms}</Fact>
      </dl>
      <Card model={model} />
      <CopyRequest request={{ path: `v1/models/${encodeURIComponent(idOf(model))}` }} />
    </article>
  )
}

/** Each result with the baselines of its own metric and condition beside it. */
function Results({ results }: { results: Result[] }) {
  const names = [...new Set(results.flatMap(({ baselines }) => baselines.map(({ name }) => name)))]
  return (
    <section class="scroll" tabIndex={0} aria-label="Measured results">
      <table>
        <thead>
          <tr>
            <th scope="col">metric</th>
            <th scope="col">condition</th>
            <th scope="col" class="right">
              examples
            </th>
            <th scope="col" class="right">
              model
            </th>
            {names.map((name) => (
              <th key={name} scope="col" class="right">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {results.map(({ metric, condition, split, examples, value, baselines }) => (
            <tr key={`${metric} ${condition} ${split}`}>
              <th scope="row">{metric}</th>
              <td>
                {condition}, {split}
              </td>
              <td class="right">{count(examples)}</td>
              <td class="right">{number(value)}</td>
              {names.map((name) => {
                const found = baselines.find((baseline) => baseline.name === name)
                return (
                  <td key={name} class="right muted">
                    {found && number(found.value)}
                  </td>
                )
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
}

/** The card of a model, which is read when it is opened. */
function Card({ model }: { model: Model }) {
  const [text, setText] = useState('')
  const read = async () => {
    try {
      const response = await send({ path: `v1/models/${encodeURIComponent(idOf(model))}/card` })
      setText(await response.text())
    } catch (error) {
      setText(error instanceof Problem ? error.detail : String(error))
    }
  }
  return (
    <details onToggle={(event) => event.currentTarget.open && read()}>
      <summary>Model card</summary>
      <section class="scroll" tabIndex={0} aria-label="Text of the model card">
        <pre>{text}</pre>
      </section>
    </details>
  )
}

function Limits({ model }: { model: Model }) {
  const { limits } = model
  switch (model.task) {
    case 'text-classification':
      return (
        <>
          <Fact name="Labels">{model.labels.join(', ')}</Fact>
          <Fact name="At once">{plural(model.max_length, 'byte')}; longer documents in overlapping windows</Fact>
          <Fact name="Document">up to {size(limits.document_bytes)}</Fact>
          <Fact name="Request">up to {plural(limits.documents, 'document')}</Fact>
        </>
      )
    case 'series-classification':
      return (
        <>
          <Fact name="Labels">{model.labels.join(', ')}</Fact>
          <Fact name="Channels">{model.channels.join(', ')}</Fact>
          <Fact name="At once">{plural(model.length, 'step')}; longer recordings in overlapping windows</Fact>
          <Fact name="Request">up to {plural(limits.documents, 'recording')}</Fact>
        </>
      )
    case 'text-matching':
      return (
        <>
          <Fact name="At once">{plural(model.max_length, 'byte')}; longer documents in overlapping windows</Fact>
          <Fact name="Document">up to {size(limits.document_bytes)}</Fact>
          <Fact name="Ranking">up to {plural(limits.rank_documents, 'document')}</Fact>
        </>
      )
    case 'forecasting':
      if (model.kind === 'any-series')
        return (
          <>
            <Fact name="Series">any, each alone; its last {plural(model.context_length, 'step')} are read</Fact>
            <Fact name="Bands">
              {model.quantiles_reliable ? 'reliable on generated series' : 'not reliable on generated series'}
            </Fact>
          </>
        )
      return (
        <>
          <Fact name="Channels">{model.channels.join(', ')}</Fact>
          <Fact name="Frequency">{model.frequency}</Fact>
          <Fact name="Context">
            {plural(model.context_length, 'step')}, {model.min_observations} of them known
          </Fact>
          <Fact name="Horizon">up to {plural(model.horizon, 'step')}</Fact>
          <Fact name="Bands">
            {model.quantiles_reliable ? 'reliable on test data' : 'not reliable on test data'}, from{' '}
            {plural(model.calibration_examples, 'error')} ({model.calibration_source})
          </Fact>
        </>
      )
  }
}

function Figure({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  )
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  )
}

/** Accuracy by mean score of each bin. On the diagonal, scores are probabilities. */
function Reliability({ bins }: { bins: ReliabilityBin[] }) {
  const most = Math.max(...bins.map(({ examples }) => examples))
  const x = (value: number) => 40 + 200 * value
  const y = (value: number) => 210 - 200 * value
  return (
    <figure class="reliability">
      <svg
        viewBox="0 0 250 250"
        role="img"
        aria-label={`Reliability: ${bins.map(({ score, accuracy }) => `score ${percent(score)}, correct ${percent(accuracy)}`).join('; ')}`}
      >
        {[0, 0.25, 0.5, 0.75, 1].map((tick) => (
          <g key={tick}>
            <line class="grid" x1={x(tick)} x2={x(tick)} y1={y(0)} y2={y(1)} />
            <line class="grid" x1={x(0)} x2={x(1)} y1={y(tick)} y2={y(tick)} />
            <text x={x(tick)} y={y(0) + 16} text-anchor="middle">
              {tick}
            </text>
            <text x={x(0) - 8} y={y(tick) + 4} text-anchor="end">
              {tick}
            </text>
          </g>
        ))}
        <line class="diagonal" x1={x(0)} y1={y(0)} x2={x(1)} y2={y(1)} />
        <polyline points={bins.map(({ score, accuracy }) => `${x(score)},${y(accuracy)}`).join(' ')} />
        {bins.map(({ score, accuracy, examples }) => (
          <circle key={score} cx={x(score)} cy={y(accuracy)} r={2 + 5 * Math.sqrt(examples / most)} />
        ))}
        <text x={x(0.5)} y="246" text-anchor="middle">
          mean score
        </text>
        <text transform={`translate(10 ${y(0.5)}) rotate(-90)`} text-anchor="middle">
          share correct
        </text>
      </svg>
      <figcaption class="muted">
        Share of correct answers by score, on {count(bins.reduce((sum, bin) => sum + bin.examples, 0))} test examples;
        larger dots stand for more of them. On the diagonal, a score of 0.8 is right 8 times out of 10.
      </figcaption>
    </figure>
  )
}
