/** Adds conditions to the operations of a body: the client's own bytes, and what is put between them. */

import type { OperationDetail } from "./operation-detail.ts";

/** Conditions, each as JSON text, that an operation's rows must fulfil beside its own. */
export interface AddedConditions {
  readonly detail: OperationDetail;
  readonly conditions: readonly string[];
}

const LETTER_N = 0x6e;

/** A condition that demands all of some. */
function all(conditions: readonly string[]): string {
  const [first = "", ...others] = conditions;
  return others.length === 0 ? first : `{"and":[${conditions.join(",")}]}`;
}

/**
 * The body with these conditions, for operations in the order of the body: the `where` of each is
 * one of the conditions from then on, and null gives way to them. No other byte changes. An
 * operation whose grammar has no `where` must not be among them.
 */
export function splice(body: Buffer, additions: readonly AddedConditions[]): Buffer {
  const pieces: Buffer[] = [];
  let copied = 0;
  const insert = (at: number, text: string, skipped = at) => {
    pieces.push(body.subarray(copied, at), Buffer.from(text));
    copied = skipped;
  };
  for (const { detail, conditions } of additions) {
    const { start, where } = detail;
    if (where === undefined) insert(start + 1, `"where":${all(conditions)},`);
    else if (body[where.start] === LETTER_N) insert(where.start, all(conditions), where.end);
    else {
      insert(where.start, `{"and":[${conditions.join(",")},`);
      insert(where.end, "]}");
    }
  }
  return Buffer.concat([...pieces, body.subarray(copied)]);
}
