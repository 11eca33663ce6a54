import type { ServerResponse } from "node:http";
import { isDeepStrictEqual } from "node:util";
import { allEntriesOf } from "../access/groups.ts";
import { Refusal } from "../base/refusal.ts";
import { CLIENT_TIMEOUT_MS } from "../upstream/answer-stream.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";

/** How often open answers are checked: a lost right cuts them within a second. */
const INTERVAL_MS = 500;

interface Stall {
  readonly flushed: number;
  readonly since: number;
}

/**
 * Cuts answers that the client does not read, because their buffers are needed for others, and
 * those that `requireAllowed` refuses. A request that is answered at once pays nothing for this.
 *
 * @param open the answers under way; each must keep its identity between checks
 * @param requireAllowed cuts the answer itself, or does nothing
 */
export function limitAnswers<Answer extends { readonly response: ServerResponse }>(
  open: () => Iterable<Answer>,
  requireAllowed: (answer: Answer) => void,
  timeoutMs = CLIENT_TIMEOUT_MS,
): NodeJS.Timeout {
  const stalls = new WeakMap<ServerResponse, Stall>();

  function isStalled(response: ServerResponse): boolean {
    const { writableNeedDrain, writableEnded, socket } = response;
    // The socket of an answer that has been sent is gone.
    if (socket === null || !(writableNeedDrain || writableEnded)) return false;
    const flushed = socket.bytesWritten - socket.writableLength;
    const stall = stalls.get(response);
    const now = performance.now();
    if (stall?.flushed === flushed) return now - stall.since > timeoutMs;
    stalls.set(response, { flushed, since: now });
    return false;
  }

  return setInterval(
    () => {
      for (const answer of open()) {
        if (isStalled(answer.response)) answer.response.destroy();
        else requireAllowed(answer);
      }
    },
    Math.min(INTERVAL_MS, timeoutMs / 4),
  ).unref();
}

/** Has a list cut once the caller's entries change: it may show what they no longer allow. */
export function cutOnChange({ access }: Gateway, { authenticated, verdict }: Exchange): void {
  const { subject } = authenticated;
  if (subject === undefined) return;
  const { snapshot } = access;
  verdict.checkWhileOpen(() => {
    if (access.snapshot === snapshot) return;
    const [now, before] = [access.snapshot, snapshot].map((one) => [...allEntriesOf(one, subject)]);
    if (!isDeepStrictEqual(now, before)) throw new Refusal("role_insufficient");
  });
}
