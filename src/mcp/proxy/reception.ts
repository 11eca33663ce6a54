import { memoizeLast } from "../../memoize.ts";
import { Refusal } from "../../refusal.ts";
import { type AnswerHead, fieldIn } from "../../upstream/http1/answer-head.ts";
import type { BodyFilter, Reception } from "../../upstream/pooled-proxy.ts";
import { EventFilter, MessageFilter, type ShowElement } from "./list-filter.ts";

/** Lower-case names that an answer of a server behind may not carry to the client. */
const dropped: ReadonlySet<string> = new Set([
  // Cookies do not go up, so they do not come down, and challenges are the gateway's.
  "set-cookie",
  "www-authenticate",
  "mcp-session-id",
]);

/** What describes the very bytes of a body that is filtered, or lets somebody keep it. */
const ofWholeBody: ReadonlySet<string> = new Set([
  ...["content-length", "etag", "digest", "content-digest", "repr-digest", "content-md5"],
  ...["accept-ranges", "last-modified", "cache-control", "expires", "age"],
]);

/** The headers that may pass of those of an answer; most answers have the very list of the one before. */
const passing = memoizeLast((raw: readonly string[]): readonly string[] => without(raw, dropped));

function without(raw: readonly string[], names: ReadonlySet<string>): string[] {
  return raw.filter((_, at) => !names.has((raw[at - (at % 2)] ?? "").toLowerCase()));
}

/** As lenient as clients are, who look for the type anywhere in the header. */
function isEventStream(answer: AnswerHead): boolean {
  return /text\/event-stream/i.test(fieldIn(answer, "content-type") ?? "");
}

function isJson(answer: AnswerHead): boolean {
  return /json/i.test(fieldIn(answer, "content-type") ?? "");
}

function isSuccess({ status }: AnswerHead): boolean {
  return status >= 200 && status < 300;
}

/**
 * The filter for an answer that may hold a list of tools or tasks.
 *
 * @throws Refusal if nobody could tell whether it does
 */
function filterFor(answer: AnswerHead, show: ShowElement): BodyFilter | undefined {
  const encoding = fieldIn(answer, "content-encoding") ?? "identity";
  if (encoding !== "identity") {
    throw new Refusal("upstream_broken", { detail: `a list in the coding ${encoding}` });
  }
  if (isEventStream(answer)) return new EventFilter(show);
  if (isJson(answer)) return new MessageFilter(show, answer.length);
  if (!isSuccess(answer)) return undefined;
  throw new Refusal("upstream_broken", { detail: "neither JSON nor an event stream" });
}

interface ReceptionOptions {
  /** Set if the answer may hold a list of tools or tasks. */
  readonly show: ShowElement | undefined;
  /** The session that the client is told of, if any. */
  readonly sessionId: string | undefined;
  /** What looks at an answer that passes as it is. */
  readonly notes: BodyFilter | undefined;
}

/**
 * Receives an answer of the server behind.
 *
 * @throws Refusal `upstream_broken` for a redirect or a 401: the one would lead the client past the
 *   gateway, and the other is about a credential that is not the client's
 */
export function receive(
  answer: AnswerHead,
  { show, sessionId, notes }: ReceptionOptions,
): Reception {
  const { status } = answer;
  if (status === 401 || (status >= 300 && status < 400)) {
    throw new Refusal("upstream_broken", { detail: `the MCP server answered ${status}` });
  }
  const isStream = isEventStream(answer);
  const filter = show === undefined ? undefined : filterFor(answer, show);
  let rawHeaders = passing(answer.headers);
  if (sessionId !== undefined) rawHeaders = [...rawHeaders, "Mcp-Session-Id", sessionId];
  if (isStream && fieldIn(answer, "x-accel-buffering") === undefined) {
    rawHeaders = [...rawHeaders, "X-Accel-Buffering", "no"];
  }
  if (filter === undefined) return { rawHeaders, filter: notes, isStream };
  const ofFiltered = [...without(rawHeaders, ofWholeBody), "Cache-Control", "no-store"];
  return { rawHeaders: ofFiltered, filter, isStream };
}
