/** What becomes of a query, as the gateway would decide on it now. */
import { readFile } from "node:fs/promises";
import type { QueryDecision } from "../access/decision.ts";
import { filterAdditions } from "../access/filter-additions.ts";
import type { EntryPoint } from "../access/grant.ts";
import { readAgain } from "../access/parse.ts";
import { decideQuery } from "../access/policy.ts";
import { EVERY_DATABASE } from "../access/roles.ts";
import type { Snapshot } from "../access/snapshot.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { openGrammar, type QueryInterface } from "../gateway/query-grammar.ts";
import { keepSpelling } from "../json/exact-numbers.ts";
import type { Query } from "../query/query.ts";
import { QueryRefused } from "../query/refusal.ts";
import { scan } from "../query/scan.ts";
import { splice } from "../query/splice.ts";
import { inForm } from "../upstream/query-form.ts";
import { obstacleOf } from "./access-questions.ts";
import { readAccess } from "./operator.ts";

/** Who asks, and how. */
export interface Asker {
  readonly user: string;
  readonly via: EntryPoint;
  readonly client?: string | undefined;
}

/** What becomes of a query. */
export interface Outcome {
  readonly allowed: boolean;
  /** As the gateway answers it, `allowed` if it is. */
  readonly code: string;
  readonly message?: string | undefined;
  /** The element of a Batch that is denied, and why. */
  readonly element?: number;
  readonly reason?: string;
  readonly query?: Query;
  readonly decided?: QueryDecision;
  /** What goes up, if it does. */
  readonly body?: Buffer;
}

/** How queries are read, what is behind, and the form in which they go up. */
export interface Setting {
  readonly queries: QueryInterface;
  readonly form: "keyed" | "op";
}

/** The setting of a gateway of this configuration. */
export async function settingOf(loaded: LoadedConfiguration): Promise<Setting> {
  const queries = openGrammar(loaded);
  await queries.known;
  return { queries, form: loaded.configuration.upstream.query_form };
}

function deniedOutcome(query: Query, decided: QueryDecision): Outcome {
  const { decisions, reason } = decided;
  const denied = { allowed: false, message: decisions.at(-1)?.message, query, decided };
  if (!query.batch || reason === "approval_required") return { ...denied, code: reason };
  return { ...denied, code: "batch_member_denied", element: decisions.length - 1, reason };
}

/** Decides on a query as the gateway does. */
export function outcomeOf(
  snapshot: Snapshot,
  { user, via, client }: Asker,
  body: Buffer,
  { queries: { grammar, isEngine }, form }: Setting,
): Outcome {
  const obstacle = obstacleOf(snapshot, user);
  if (obstacle !== undefined) return { allowed: false, code: obstacle };
  try {
    const query = scan(body, grammar, true);
    const subject = { username: user, tokenDatabase: EVERY_DATABASE };
    const context = { via, client, now: Date.now(), isEngine };
    const decided = decideQuery(snapshot, subject, query, context);
    if (!decided.allowed) return deniedOutcome(query, decided);
    const filtered = splice(body, filterAdditions(query, decided.decisions));
    const sent = inForm(form, filtered, scan(filtered, grammar));
    return { allowed: true, code: "allowed", query, decided, body: sent };
  } catch (error) {
    if (!(error instanceof QueryRefused)) throw error;
    return { allowed: false, code: error.code, message: error.message };
  }
}

/** The access file that is asked about: the gateway's own, or a file that is nobody's yet. */
export async function snapshotFor(
  loaded: LoadedConfiguration,
  { file }: { readonly file?: string },
): Promise<Snapshot> {
  return file === undefined ? readAccess(loaded) : readNamedAccess(file);
}

/** Reads an access file that need not be private, such as one in a repository. */
export async function readNamedAccess(file: string): Promise<Snapshot> {
  return (await readAgain(await readFile(file), file, undefined)).snapshot;
}

/** What each operation of a query came to, in the words of the decision. */
function viewDecisions({ query, decided }: Outcome): object[] {
  return (decided?.decisions ?? []).map(({ filters, additions, ...decision }, at) => {
    const { operation, database, tables } = query?.accesses[at] ?? {};
    const conditions = (texts: readonly string[]) =>
      texts.map((text) => JSON.parse(text, keepSpelling));
    return {
      operation,
      database,
      tables,
      ...decision,
      ...(filters === undefined ? {} : { filters: conditions(filters) }),
      ...(additions === undefined ? {} : { added: conditions(additions) }),
    };
  });
}

/** The outcome as JSON shows it. */
export function viewOutcome(asker: Asker, outcome: Outcome): object {
  const { query: _, decided, body, ...rest } = outcome;
  return {
    ...asker,
    ...rest,
    decisions: viewDecisions(outcome),
    limits: decided?.limits ?? [],
    approvals: decided?.approvals ?? [],
    ...(body === undefined ? {} : { body: body.toString() }),
  };
}
