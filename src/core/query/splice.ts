import type { OperationNode } from "./node.ts";

/** Conditions as JSON text, for an operation. */
interface AddedText {
  readonly node: OperationNode;
  readonly conditions: readonly string[];
}

const LETTER_N = 0x6e;

function all(conditions: readonly string[]): string {
  const [first = "", ...others] = conditions;
  return others.length === 0 ? first : `{"and":[${conditions.join(",")}]}`;
}

interface Edit {
  readonly at: number;
  readonly text: string;
  /** Where the body continues. */
  readonly next: number;
}

/**
 * Adds conditions to operations, which may contain each other. The client's `where` becomes one
 * of the terms, or is replaced if it is null. No other byte changes.
 */
export function splice(body: Buffer, additions: readonly AddedText[]): Buffer {
  const pieces: Buffer[] = [];
  let copied = 0;
  const edits: Edit[] = [];
  const insert = (at: number, text: string, next = at) => edits.push({ at, text, next });
  for (const { node, conditions } of additions) {
    const {
      range: { start },
      where,
    } = node;
    if (where === undefined) insert(start + 1, `"where":${all(conditions)},`);
    else if (body[where.start] === LETTER_N) insert(where.start, all(conditions), where.end);
    else {
      insert(where.start, `{"and":[${conditions.join(",")},`);
      insert(where.end, "]}");
    }
  }
  for (const { at, text, next } of edits.sort((one, other) => one.at - other.at)) {
    pieces.push(body.subarray(copied, at), Buffer.from(text));
    copied = next;
  }
  return Buffer.concat([...pieces, body.subarray(copied)]);
}
