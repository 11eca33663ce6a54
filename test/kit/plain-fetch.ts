/** `fetch` for plain requests, without its cost. */
import { Agent, type IncomingMessage, request } from "node:http";
import { text } from "node:stream/consumers";

export type AnswerHeaders = Pick<Headers, "get" | "getSetCookie" | "keys"> &
  Iterable<[name: string, value: string]>;

interface PlainAnswer {
  readonly status: number;
  readonly headers: AnswerHeaders;
  readonly text: string;
}

const agent = new Agent({ keepAlive: true });

function headersOf({ headersDistinct }: IncomingMessage): AnswerHeaders {
  const values = new Map<string, string>();
  for (const [name, all = []] of Object.entries(headersDistinct)) values.set(name, all.join(", "));
  return {
    get: (name) => values.get(name.toLowerCase()) ?? null,
    getSetCookie: () => headersDistinct["set-cookie"] ?? [],
    keys: () => values.keys(),
    [Symbol.iterator]: () => values[Symbol.iterator](),
  };
}

async function sendPlain(
  url: string,
  method: string,
  headers: Readonly<Record<string, string>>,
  body: string | Uint8Array,
): Promise<PlainAnswer> {
  const sent = request(url, { method, headers, agent });
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  sent.once("response", resolve).once("error", reject).end(body);
  const answer = await promise;
  return { status: answer.statusCode ?? 0, headers: headersOf(answer), text: await text(answer) };
}

/** As `fetch`, which does what this does not: streams, redirects, signals and TLS. */
export async function plainFetch(url: string, init: RequestInit): Promise<PlainAnswer> {
  const { method = "GET", headers = {}, body, ...more } = init;
  const isText = typeof body === "string";
  const isPlain =
    url.startsWith("http:") &&
    Object.keys(more).length === 0 &&
    Object.getPrototypeOf(headers) === Object.prototype &&
    (isText || body === undefined || body === null || body instanceof Uint8Array);
  if (isPlain) {
    const given: Record<string, string> = {
      accept: "*/*",
      "accept-language": "*",
      "sec-fetch-mode": "cors",
      "user-agent": "node",
      ...(isText ? { "content-type": "text/plain;charset=UTF-8" } : {}),
    };
    for (const [name, value] of Object.entries(headers)) given[name.toLowerCase()] = String(value);
    const bytes = body ?? "";
    if (body) given["content-length"] = String(Buffer.byteLength(bytes));
    const answer = await sendPlain(url, method, given, bytes);
    if (answer.status < 300 || answer.status > 399) return answer;
    const place = answer.headers.get("location");
    if (place === null) return answer;
    return plainFetch(new URL(place, url).href, {});
  }
  const response = await fetch(url, init);
  return { status: response.status, headers: response.headers, text: await response.text() };
}
