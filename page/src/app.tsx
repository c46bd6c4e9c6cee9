/** The frame of the page: its head, the tabs, and the models that all of them use. */

import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { type Answer, ask, hasKey, onKey, Problem, setKey } from './api'
import { Classify } from './classify'
import { Forecast } from './forecast'
import { LiveTab } from './live'
import { useLive, watch } from './metrics'
import type { ModelList } from './models'
import { ModelsTab } from './models-tab'
import { Rank } from './rank'

const TABS = ['classify', 'rank', 'forecast', 'models', 'live'] as const
type Tab = (typeof TABS)[number]
const TITLES: Record<Tab, string> = {
  classify: 'Classify',
  rank: 'Rank',
  forecast: 'Forecast',
  models: 'Models',
  live: 'Live',
}

function tabOfAddress(): Tab {
  const name = location.hash.slice(1)
  return TABS.find((tab) => tab === name) ?? 'classify'
}

export function App() {
  const [tab, setTab] = useState(tabOfAddress)
  const { list, problem } = useModels()
  const buttons = useRef<Partial<Record<Tab, HTMLButtonElement | null>>>({})

  useEffect(() => {
    const follow = () => setTab(tabOfAddress())
    addEventListener('hashchange', follow)
    return () => removeEventListener('hashchange', follow)
  }, [])
  useEffect(() => {
    document.title = `${TITLES[tab]} · longdoc-serve`
    watch(tab === 'live' || tab === 'models')
  }, [tab])

  const select = (name: Tab) => {
    history.replaceState(null, '', `#${name}`)
    setTab(name)
  }
  const move = (event: KeyboardEvent) => {
    const index = TABS.indexOf(tab)
    const next = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: TABS.length - 1 }[event.key]
    const name = next === undefined ? undefined : TABS.at(next % TABS.length)
    if (!name) return
    event.preventDefault()
    select(name)
    buttons.current[name]?.focus()
  }

  return (
    <>
      <header>
        <div class="bar">
          <span class="brand">longdoc-serve</span>
          <div role="tablist" aria-label="What to try" onKeyDown={move}>
            {TABS.map((name) => (
              <button
                key={name}
                ref={(element) => {
                  buttons.current[name] = element
                }}
                type="button"
                role="tab"
                id={`tab-${name}`}
                aria-selected={tab === name}
                aria-controls={`panel-${name}`}
                tabIndex={tab === name ? 0 : -1}
                onClick={() => select(name)}
              >
                {TITLES[name]}
              </button>
            ))}
          </div>
          <nav aria-label="More">
            <Status />
            <a href="docs">API docs</a>
            <KeyField isNeeded={problem?.status === 401} />
          </nav>
        </div>
      </header>
      <main>
        <Gone />
        {problem && problem.status !== 0 && (
          <div class="failure" role="alert">
            <strong>{problem.title}</strong>
            <span class="code">{problem.status}</span>
            <p>{problem.detail}</p>
          </div>
        )}
        {TABS.map((name) => (
          <section
            key={name}
            id={`panel-${name}`}
            role="tabpanel"
            aria-labelledby={`tab-${name}`}
            hidden={tab !== name}
          >
            {name === 'classify' && <Classify list={list} isShown={tab === name} />}
            {name === 'rank' && <Rank list={list} />}
            {name === 'forecast' && <Forecast list={list} isShown={tab === name} />}
            {name === 'models' && <ModelsTab list={list} />}
            {name === 'live' && <LiveTab list={list} isShown={tab === name} />}
          </section>
        ))}
      </main>
    </>
  )
}

/** The served models; asked for again when the key changes, when the service is back, and every minute. */
function useModels(): { list: ModelList | null; problem: Problem | null } {
  const [list, setList] = useState<ModelList | null>(null)
  const [problem, setProblem] = useState<Problem | null>(null)
  const { isUp } = useLive()
  const load = useCallback(() => {
    ask<ModelList>({ path: 'v1/models' }).then(
      ({ data }: Answer<ModelList>) => {
        setList(data)
        setProblem(null)
      },
      (error: unknown) => setProblem(error instanceof Problem ? error : new Problem('The page failed', String(error))),
    )
  }, [])
  const isGone = isUp === false
  useEffect(() => onKey(load), [load])
  useEffect(() => {
    if (isGone) return
    load()
    const timer = setInterval(load, 60_000)
    return () => clearInterval(timer)
  }, [isGone, load])
  return { list, problem }
}

/** Whether the service accepts requests. */
function Status() {
  const { isUp, samples } = useLive()
  const ready = (samples.at(-1)?.series ?? []).filter(({ name }) => name === 'longdoc_model_ready')
  const [state, text] =
    isUp === null
      ? ['unknown', 'Connecting']
      : !isUp
        ? ['down', 'Gone']
        : ready.every(({ value }) => value === 1)
          ? ['ready', 'Ready']
          : ['busy', 'Not ready']
  return (
    <span class={`status ${state}`} role="status">
      {text}
    </span>
  )
}

/** Tells that the service is gone, until it is back. */
function Gone() {
  const { isUp } = useLive()
  if (isUp !== false) return null
  return (
    <div class="failure" role="alert">
      <strong>The service does not answer</strong>
      <p>The page asks every two seconds and continues when it is back. What you entered stays.</p>
    </div>
  )
}

/** The field for the API key. */
function KeyField({ isNeeded }: { isNeeded: boolean }) {
  const [isOpen, setOpen] = useState(false)
  const [value, setValue] = useState('')
  const input = useRef<HTMLInputElement>(null)
  const isShown = isOpen || isNeeded
  useEffect(() => {
    if (isShown) input.current?.focus()
  }, [isShown])
  const submit = (event: Event) => {
    event.preventDefault()
    setKey(value)
    setOpen(false)
  }
  if (!isShown)
    return (
      <button type="button" class="quiet" onClick={() => setOpen(true)}>
        {hasKey() ? 'Change key' : 'API key'}
      </button>
    )
  return (
    <form class="key" onSubmit={submit}>
      <input
        ref={input}
        type="password"
        autocomplete="off"
        aria-label="API key; it is kept until the page is closed"
        placeholder="API key"
        value={value}
        onInput={(event) => setValue(event.currentTarget.value)}
        onKeyDown={(event) => event.key === 'Escape' && setOpen(false)}
      />
      <button type="submit">Use</button>
    </form>
  )
}
