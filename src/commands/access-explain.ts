/** `gatehouse access explain`: what becomes of a query, and why. */
import { buffer } from "node:stream/consumers";
import type { EntryPoint } from "../access/grant.ts";
import { type Asker, type Outcome, outcomeOf } from "../gateway/query-outcome.ts";
import { type CommonOptions, loadFor } from "./options.ts";
import { FAILURE, print, printJson } from "./output.ts";
import { settingOf, snapshotFor, viewOutcome } from "./query-outcome.ts";

function printOutcome({ user }: Asker, outcome: Outcome): void {
  const { allowed, code, message, element, reason, query, decided, body } = outcome;
  const where = element === undefined ? "" : ` (element ${element}: ${reason})`;
  const why = message === undefined ? "" : `: ${message}`;
  print(allowed ? `allowed: ${user}` : `denied: ${user}: ${code}${where}${why}`);
  for (const [at, { role, entry, boundary, additions = [] }] of (
    decided?.decisions ?? []
  ).entries()) {
    const { operation, database, tables = [] } = query?.accesses[at] ?? {};
    const place = tables.length === 0 ? database : `${database}.${tables.join(", ")}`;
    const by = entry === undefined ? "no entry" : `${role} by the entry for ${entry}`;
    const within = boundary === undefined ? "" : `, within the boundary ${boundary}`;
    const added = additions.length === 0 ? "" : `; added: ${additions.join(", ")}`;
    print(`${operation} on ${place}: ${by}${within}${added}`);
  }
  for (const { elements, changes, rows } of decided?.limits ?? []) {
    const most = changes === undefined ? `${rows} rows answered` : `${changes} rows changed`;
    print(`the database keeps: at most ${most} by element ${elements.join(", ")}`);
  }
  for (const { permissions, approvers, entry, boundary } of decided?.approvals ?? []) {
    const by = approvers?.join(" or ") ?? "whoever may grant there";
    print(`${permissions.join(", ")} needs approval by ${by} (${entry ?? boundary})`);
  }
  if (body !== undefined) print(`\n${body.toString()}`);
}

interface ExplainOptions extends CommonOptions {
  readonly via: EntryPoint;
  readonly client?: string;
  readonly file?: string;
  readonly json?: true;
}

/** `access explain`: the decision on the query on standard input, and the bytes that would go up. */
export async function explainQuery(user: string, options: ExplainOptions): Promise<void> {
  const loaded = loadFor(options);
  const snapshot = await snapshotFor(loaded, options);
  const setting = await settingOf(loaded);
  const asker = { user, via: options.via, client: options.client };
  const outcome = outcomeOf(snapshot, asker, await buffer(process.stdin), setting);
  if (options.json) printJson(viewOutcome(asker, outcome));
  else printOutcome(asker, outcome);
  if (!outcome.allowed) process.exitCode = FAILURE;
}
