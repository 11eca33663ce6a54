/** What `gatehouse access explain` and `test` decide on, and how they show it. */
import { readFile } from "node:fs/promises";
import { readAgain } from "../access/parse.ts";
import type { Snapshot } from "../access/snapshot.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { openGrammar } from "../gateway/query-grammar.ts";
import type { Asker, Outcome, Setting } from "../gateway/query-outcome.ts";
import { keepSpelling } from "../json/exact-numbers.ts";
import { readAccess } from "./operator.ts";

/** The setting of a gateway of this configuration. */
export async function settingOf(loaded: LoadedConfiguration): Promise<Setting> {
  const queries = openGrammar(loaded);
  await queries.known;
  return { queries, form: loaded.configuration.upstream.query_form };
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
