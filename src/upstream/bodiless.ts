/** Answers whose status says that they have no content (RFC 9110, sections 8.6 and 15). */

const NO_CONTENT = 204;
export const RESET_CONTENT = 205;
export const NOT_MODIFIED = 304;

/** How an answer's head says where its content ends; undefined for a field that is not there. */
export interface Framed {
  readonly length: string | undefined;
  readonly encoding: string | undefined;
}

/**
 * True for a head that tells of content which its status rules out: one reader goes by the status,
 * another one waits for the content, and takes the next answer for it.
 */
export function isContradictory(status: number, { length, encoding }: Framed): boolean {
  if (status < 200 || status === NO_CONTENT) return length !== undefined || encoding !== undefined;
  return status === RESET_CONTENT && length !== undefined && Number(length) !== 0;
}

/** True for a status under which no content follows, whatever the head says. */
export function isBodiless(status: number): boolean {
  return status < 200 || status === NO_CONTENT || status === NOT_MODIFIED;
}

/** True if a 304 may say how long the content is that it spares: to a conditional GET or HEAD. */
export function maySpareContent(
  method: string | undefined,
  headers: NodeJS.Dict<string | readonly string[]>,
): boolean {
  const isConditional =
    headers["if-none-match"] !== undefined || headers["if-modified-since"] !== undefined;
  return isConditional && (method === "GET" || method === "HEAD");
}

/** The headers, names and values in turn, without `Content-Length`. */
export function withoutLength(raw: readonly string[]): readonly string[] {
  return raw.filter((_, at) => raw[at - (at % 2)]?.toLowerCase() !== "content-length");
}
