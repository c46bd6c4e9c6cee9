/** The curl and the Python that send a request of the page. Keys are read from a variable and never copied. */

import { type ApiRequest, address, hasKey } from './api'

/** Linux limits the length of one argument of a command to 131,072 bytes. */
const MAX_INLINE_BYTES = 120_000

/** The name of the file to send, if the body is one or is too long for a command. */
export function fileOf({ body }: ApiRequest): string | null {
  if (!body) return null
  if ('file' in body) return body.file
  if (new Blob([body.content]).size <= MAX_INLINE_BYTES) return null
  return body.type === 'application/json' ? 'request.json' : 'document.txt'
}

export function curlOf(request: ApiRequest): string {
  const parts = [`curl -s ${quote(address(request))}`]
  if (hasKey()) parts.push('-H "Authorization: Bearer $LONGDOC_API_KEY"')
  if (request.body) {
    parts.push(`-H ${quote(`Content-Type: ${request.body.type}`)}`)
    const file = fileOf(request)
    parts.push(
      file === null ? `--data-raw ${quote(String(request.body.content))}` : `--data-binary ${quote(`@${file}`)}`,
    )
  }
  return parts.join(' \\\n  ')
}

export function pythonOf(request: ApiRequest): string {
  const { body } = request
  const imports = ['json', ...(hasKey() ? ['os'] : []), 'urllib.request']
  const headers = [
    ...(hasKey() ? ['"Authorization": f"Bearer {os.environ[\'LONGDOC_API_KEY\']}"'] : []),
    ...(body ? [`"Content-Type": ${literal(body.type)}`] : []),
  ]
  const file = fileOf(request)
  const lines = [...imports.map((name) => `import ${name}`), '']
  const options = [literal(address(request))]
  if (body) {
    if (file !== null) lines.push(`with open(${literal(file)}, "rb") as stream:`, '    body = stream.read()')
    else if (body.type === 'application/json')
      lines.push(`body = json.dumps(${literal(JSON.parse(String(body.content)))}).encode()`)
    else lines.push(`body = ${literal(String(body.content))}.encode()`)
    options.push('body')
  }
  if (headers.length) options.push(body ? `{${headers.join(', ')}}` : `headers={${headers.join(', ')}}`)
  lines.push(`request = urllib.request.Request(${options.join(', ')})`)
  lines.push('with urllib.request.urlopen(request) as response:')
  lines.push(request.path === 'metrics' ? '    print(response.read().decode())' : '    print(json.load(response))')
  return `${lines.join('\n')}\n`
}

/** A word of a POSIX shell. */
function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`
}

/** A literal of Python. */
function literal(value: unknown): string {
  if (value === null) return 'None'
  if (typeof value === 'boolean') return value ? 'True' : 'False'
  if (Array.isArray(value)) return `[${value.map(literal).join(', ')}]`
  if (typeof value === 'object')
    return `{${Object.entries(value)
      .map(([name, item]) => `${literal(name)}: ${literal(item)}`)
      .join(', ')}}`
  return JSON.stringify(value)
}
