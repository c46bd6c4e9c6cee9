/** A document as a strip of its parts, and as text; the two point at each other. */

import type { ComponentChildren } from 'preact'
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { count, percent } from './format'
import { type DocumentResult, evidenceText, type Kind, type Part, rivalOf, shade } from './parts'

interface Props {
  parts: Part[]
  kind: Kind
  label: string
  result: DocumentResult
}

/** Number of passages that are listed for and against the label. */
const LISTED = 3
/** Space above the part that the text is scrolled to. */
const MARGIN_PX = 24

export function Evidence({ parts, kind, label, result }: Props) {
  const [active, setActive] = useState(0)
  const reader = useRef<HTMLDivElement>(null)
  const view = useRef<HTMLSpanElement>(null)
  const total = parts.at(-1)?.end ?? 0

  useEffect(() => setActive(0), [result])

  const showView = useCallback(() => {
    const box = reader.current
    const mark = view.current
    if (!box || !mark) return
    const [first, last] = visible(box)
    const start = parts[first]?.start ?? 0
    const end = parts[last]?.end ?? total
    mark.hidden = box.scrollHeight <= box.clientHeight
    mark.style.left = `${(100 * start) / total}%`
    mark.style.width = `${(100 * (end - start)) / total}%`
  }, [parts, total])
  useEffect(showView, [showView])

  const scrollTo = (index: number) => {
    setActive(index)
    const box = reader.current
    const span = box?.children[index]
    if (!box || !(span instanceof HTMLElement)) return
    box.scrollTop = span.offsetTop - MARGIN_PX
    box.scrollIntoView({ block: 'nearest' })
  }
  useEffect(() => {
    const span = reader.current?.children[active]
    span?.classList.add('active')
    return () => span?.classList.remove('active')
  }, [active, parts])

  // Drawn once for each answer, because a long document has thousands of parts.
  const text = useMemo(
    () =>
      parts.map(({ start, evidence, weight, text }, index) => (
        <span
          key={start}
          data-part={index}
          class={evidence === null ? 'unread' : evidence >= 0 ? 'for' : 'against'}
          style={{ '--shade': `${Math.round(30 * shade(weight))}%` }}
        >
          {text}
        </span>
      )),
    [parts],
  )

  const part = parts[active]
  const rival = rivalOf(result, label)
  return (
    <div class="evidence">
      <div class="legend">
        <span>
          <i class="swatch for" /> speaks for {label}
        </span>
        <span>
          <i class="swatch against" /> speaks for {rival}
        </span>
        {parts.some(({ evidence }) => evidence === null) && (
          <span>
            <i class="swatch unread" /> not read
          </span>
        )}
      </div>
      <Strip
        parts={parts}
        total={total}
        active={active}
        say={(index) => says(parts[index], kind, label, result)}
        onActive={setActive}
        onChoose={scrollTo}
      >
        <span ref={view} class="view" hidden />
      </Strip>
      {part && (
        <div class="lens">
          <p class="where">
            <span>
              bytes {count(part.start)} to {count(part.end)}
            </span>
            <span>{says(part, kind, label, result)}</span>
          </p>
          <p class="excerpt">{quote(part, 300)}</p>
        </div>
      )}
      <section
        class="reader"
        tabIndex={0}
        aria-label="The document"
        ref={reader}
        onScroll={showView}
        onPointerMove={(event) => {
          const index = Number((event.target as HTMLElement).dataset.part ?? -1)
          if (index >= 0) setActive(index)
        }}
      >
        {text}
      </section>
      {parts.length > 2 && <Strongest parts={parts} label={label} rival={rival} onChoose={scrollTo} />}
    </div>
  )
}

function Strip(props: {
  parts: Part[]
  total: number
  active: number
  say: (index: number) => string
  onActive: (index: number) => void
  onChoose: (index: number) => void
  children: ComponentChildren
}) {
  const { parts, total, active, onActive, onChoose } = props
  const at = (event: PointerEvent | MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect()
    const byte = ((event.clientX - box.left) / box.width) * total
    return indexAt(parts, byte)
  }
  const move = (event: KeyboardEvent) => {
    const page = Math.max(2, Math.round(parts.length / 10))
    const steps: Record<string, number> = {
      ArrowRight: 1,
      ArrowUp: 1,
      ArrowLeft: -1,
      ArrowDown: -1,
      PageUp: page,
      PageDown: -page,
      Home: -parts.length,
      End: parts.length,
    }
    const step = steps[event.key]
    if (step !== undefined) onActive(Math.min(parts.length - 1, Math.max(0, active + step)))
    else if (event.key === 'Enter' || event.key === ' ') onChoose(active)
    else return
    event.preventDefault()
  }
  const drawn = useMemo(
    () => (
      <svg viewBox={`0 0 ${Math.max(1, total)} 1`} preserveAspectRatio="none" aria-hidden="true">
        {parts.map(({ start, end, evidence, weight }) => (
          <rect
            key={start}
            class={evidence === null ? 'unread' : evidence >= 0 ? 'for' : 'against'}
            fill-opacity={evidence === null ? 1 : shade(weight)}
            x={start}
            width={end - start}
            height="1"
          />
        ))}
      </svg>
    ),
    [parts, total],
  )
  const part = parts[active]
  return (
    <div
      class="strip"
      role="slider"
      tabIndex={0}
      aria-label="Parts of the document; arrows move, Enter scrolls to the part"
      aria-valuemin={1}
      aria-valuemax={parts.length}
      aria-valuenow={active + 1}
      aria-valuetext={`part ${active + 1} of ${parts.length}: ${props.say(active)}: ${part ? quote(part, 120) : ''}`}
      onPointerMove={(event) => event.pointerType !== 'touch' && onActive(at(event))}
      onClick={(event) => onChoose(at(event))}
      onKeyDown={move}
    >
      {drawn}
      {props.children}
      {part && (
        <span
          class="cursor"
          style={{ left: `${(100 * part.start) / total}%`, width: `${(100 * (part.end - part.start)) / total}%` }}
        />
      )}
    </div>
  )
}

function Strongest(props: { parts: Part[]; label: string; rival: string; onChoose: (index: number) => void }) {
  const ordered = props.parts
    .map((part, index) => ({ ...part, index, value: part.evidence ?? 0 }))
    .sort((a, b) => b.value - a.value)
  const sides = [
    { title: `Most for ${props.label}`, kind: 'for', found: ordered.slice(0, LISTED).filter(({ value }) => value > 0) },
    {
      title: `Most for ${props.rival}`,
      kind: 'against',
      found: ordered
        .slice(-LISTED)
        .reverse()
        .filter(({ value }) => value < 0),
    },
  ]
  return (
    <div class="strongest">
      {sides.map(({ title, kind, found }) => (
        <div key={kind}>
          <h3>
            <i class={`swatch ${kind}`} /> {title}
          </h3>
          {found.length === 0 && <p class="muted">No part does.</p>}
          <ol>
            {found.map((part) => (
              <li key={part.index}>
                <button type="button" class="passage" onClick={() => props.onChoose(part.index)}>
                  <span class="excerpt">{quote(part, 140)}</span>
                  <span class="at">at byte {count(part.start)}</span>
                </button>
              </li>
            ))}
          </ol>
        </div>
      ))}
    </div>
  )
}

/** What one part says, in words. */
function says(part: Part | undefined, kind: Kind, label: string, result: DocumentResult): string {
  if (!part || part.evidence === null) return 'not read'
  if (kind === 'stretches') return evidenceText(part.evidence, label)
  const best = result.windows.find(({ start, end }) => start <= part.start && part.end <= end)?.scores[0]
  return best ? `this window alone: ${best.label} ${percent(best.score)}` : ''
}

/** The beginning of a part, in whole words. */
function quote({ start, text }: Part, length: number): string {
  const whole = start > 0 ? text.replace(/^\S{0,30}\s/, '… ') : text
  const words = whole.replace(/\s+/g, ' ').trim()
  return words.length > length ? `${words.slice(0, length).replace(/[\s.,;:]+\S*$/, '')}…` : words
}

/** Index of the part with a byte. */
export function indexAt(parts: Part[], byte: number): number {
  let low = 0
  let high = parts.length - 1
  while (low < high) {
    const middle = (low + high) >> 1
    if ((parts[middle]?.end ?? 0) <= byte) low = middle + 1
    else high = middle
  }
  return low
}

/** Indices of the first and last visible part. */
function visible(box: HTMLElement): [number, number] {
  const spans = box.children
  const bottomOf = (index: number) => {
    const span = spans[index] as HTMLElement
    return span.offsetTop + span.offsetHeight
  }
  const find = (offset: number) => {
    let low = 0
    let high = spans.length - 1
    while (low < high) {
      const middle = (low + high) >> 1
      if (bottomOf(middle) <= offset) low = middle + 1
      else high = middle
    }
    return low
  }
  return [find(box.scrollTop), find(box.scrollTop + box.clientHeight - 1)]
}
