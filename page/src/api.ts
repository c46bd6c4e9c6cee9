/** Requests to the service. All addresses are relative to the page, which may lie below a path prefix. */

/** A request, as the page sends it and as it can be copied. */
export interface ApiRequest {
  /** Path without a leading slash, such as `v1/classify`. */
  path: string
  query?: Record<string, string>
  /** Sent as POST; without a body the request is a GET. */
  body?: { type: string; content: string } | { type: string; content: Uint8Array<ArrayBuffer>; file: string }
}

export interface Answer<T> {
  data: T
  /** Milliseconds by stage, from the header `Server-Timing`. */
  timing: Record<string, number>
}

/** An error to show: what went wrong, and when to try again. */
export class Problem extends Error {
  constructor(
    readonly title: string,
    readonly detail: string,
    /** HTTP status; 0 if there was no response. */
    readonly status = 0,
    /** Seconds after which the service may accept the request. */
    readonly retryAfter: number | null = null,
  ) {
    super(`${title}: ${detail}`)
  }
}

/** The API key. It is kept in memory alone: closing or reloading the page forgets it. */
let key = ''
const keyListeners = new Set<() => void>()

export function hasKey(): boolean {
  return key !== ''
}

export function setKey(value: string): void {
  key = value.trim()
  for (const listener of keyListeners) listener()
}

/** Call a function whenever the key changes; returns how to stop. */
export function onKey(listener: () => void): () => void {
  keyListeners.add(listener)
  return () => keyListeners.delete(listener)
}

export function address({ path, query = {} }: ApiRequest): string {
  const url = new URL(path, document.baseURI)
  url.hash = ''
  url.search = new URLSearchParams(query).toString()
  return url.href
}

/** Send a request. Throws Problem, or the DOMException of an abort. */
export async function send(request: ApiRequest, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = key ? { 'X-API-Key': key } : {}
  if (request.body) headers['Content-Type'] = request.body.type
  let response: Response
  try {
    response = await fetch(address(request), {
      method: request.body ? 'POST' : 'GET',
      headers,
      body: request.body?.content,
      signal,
      cache: 'no-store',
      credentials: 'omit',
    })
  } catch (error) {
    if (signal?.aborted) throw error
    throw new Problem('The service does not answer', 'It may be stopped, or the network may be down. Nothing was lost.')
  }
  if (!response.ok) throw await problemOf(response)
  return response
}

/** Send a request whose response is JSON. Throws as `send`. */
export async function ask<T>(request: ApiRequest, signal?: AbortSignal): Promise<Answer<T>> {
  const response = await send(request, signal)
  const timing: Record<string, number> = {}
  for (const stage of (response.headers.get('server-timing') ?? '').split(',')) {
    const [name, duration] = stage.trim().split(';dur=')
    if (name && duration) timing[name] = Number(duration)
  }
  return { data: (await response.json()) as T, timing }
}

async function problemOf(response: Response): Promise<Problem> {
  const { status } = response
  let detail = ''
  let title = response.statusText || 'Error'
  try {
    const problem = (await response.json()) as { title?: string; detail?: string }
    title = problem.title ?? title
    detail = problem.detail ?? ''
  } catch {
    // A proxy may answer in its own format.
  }
  if (status === 401) {
    title = hasKey() ? 'The service does not accept this API key' : 'The service needs an API key'
    detail = 'Enter a key at the top of the page.'
  }
  const wait = Number(response.headers.get('retry-after') ?? Number.NaN)
  return new Problem(title, detail, status, Number.isFinite(wait) ? wait : null)
}
