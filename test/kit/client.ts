import { type IncomingHttpHeaders, type IncomingMessage, request } from "node:http";
import { PATIENCE_MS } from "./eventually.ts";

export interface Ask {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string | string[]>>;
  readonly body?: string | Buffer;
}

export interface PlainAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Names and values in turn, as they came. */
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
}

export async function open(
  url: string,
  { method, headers, body }: Ask = {},
): Promise<IncomingMessage> {
  const sent = request(url, {
    method: method ?? "GET",
    agent: false,
    headers: { ...headers },
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  sent.once("response", resolve);
  sent.once("error", reject);
  sent.end(body);
  return promise;
}

export async function ask(url: string, options: Ask = {}): Promise<PlainAnswer> {
  const answer = await open(url, options);
  const chunks: Buffer[] = [];
  for await (const chunk of answer) chunks.push(chunk);
  const { statusCode = 0, headers, rawHeaders } = answer;
  return { status: statusCode, headers, rawHeaders, body: Buffer.concat(chunks) };
}
