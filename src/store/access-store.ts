import type { AccessRules, Author, ChangeOptions } from "../access/access-rules.ts";
import { requireRemainingOwners } from "../access/administration.ts";
import {
  isGone,
  type Replacement,
  recordsOf,
  replacementOf,
  replaceRecords,
} from "../access/record-change.ts";
import { writtenBoundary } from "../access/records.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { runCooperatively } from "../cooperative-scheduling.ts";
import type { Query } from "./database.ts";
import { writeExact, writtenRecords } from "./log.ts";
import type { Replica } from "./replica.ts";
import type { SharedState } from "./state.ts";
import type { StoreWriter } from "./writer.ts";

export type ReplacementPlan = (current: Snapshot) => Replacement;

/** Writes the records that a starting replica reads instead of the whole log. */
async function writeRecords(
  query: Query,
  { users, boundaries }: Replacement,
  version: number,
): Promise<void> {
  const { gone = [], kept = [] } = Object.groupBy(users, ([, records]) =>
    isGone(records) ? "gone" : "kept",
  );
  const sql = "delete from gatehouse.users where username = any($1)";
  await query(sql, [gone.map(([name]) => name)]);
  await query(
    `insert into gatehouse.users (username, version, record)
      select name, $1, record::json from unnest($2::text[], $3::text[]) as given (name, record)
      on conflict (username) do update set version = excluded.version, record = excluded.record`,
    [
      version,
      kept.map(([name]) => name),
      kept.map(([, records]) => writeExact(writtenRecords(records))),
    ],
  );
  if (boundaries === undefined) return;
  const written = writeExact(boundaries.map(writtenBoundary));
  await query("update gatehouse.boundaries set version = $1, records = $2", [version, written]);
}

function replacedBy(snapshot: Snapshot, { users, boundaries }: Replacement): Replacement {
  const records = users.keys().map((name) => [name, recordsOf(snapshot, name)] as const);
  return {
    users: new Map(records),
    ...(boundaries === undefined ? {} : { boundaries: snapshot.boundaries }),
  };
}

/**
 * @param force also if the last Owner of a database or the last administrator is lost
 * @throws Refusal `last_owner` or `last_administrator`; RecordsError about contradicting records
 */
export async function previewAccess(
  { snapshot: before }: SharedState,
  replacement: Replacement,
  version: number,
  force = false,
): Promise<Snapshot> {
  const after = await runCooperatively(replaceRecords(before, replacement, String(version)));
  if (!force) await runCooperatively(requireRemainingOwners(before, after));
  return after;
}

/**
 * Runs `plan` while no other writer can change the records. Resolves to the state as written.
 *
 * @throws what `previewAccess` throws; Refusal from `plan`, `store_unreachable`, `store_uncertain`
 */
export async function replaceAccess(
  { state, writer, author }: Pick<StoreAccess, "state" | "writer" | "author">,
  plan: ReplacementPlan,
  { force = false, beforeWrite, author: named }: ChangeOptions = {},
): Promise<Snapshot> {
  let written = state.snapshot;
  await writer.append(async (turn) => {
    const before = state.snapshot;
    written = before;
    const replacement = plan(before);
    if (replacement.users.size === 0 && replacement.boundaries === undefined) return;
    await beforeWrite?.();
    const { version } = turn;
    const next = await previewAccess(state, replacement, version, force);
    await writeRecords(turn.query, replacement, version);
    const replaced = replacedBy(before, replacement);
    await turn.append({ change: { kind: "access", replacement }, before: replaced });
    written = next;
  }, named ?? author);
  return written;
}

export interface StoreAccess {
  readonly state: SharedState;
  readonly writer: StoreWriter;
  /** Undefined for a command: it decides nothing and uses what it has just read. */
  readonly replica: Replica | undefined;
  /** The author of changes that name no other. */
  readonly author: Author;
}

/** Opens the users, grants and boundaries in the store. Changes are in force at every replica. */
export function openAccessStore(store: StoreAccess): AccessRules {
  const { state, replica } = store;
  return {
    get snapshot() {
      replica?.requireFresh();
      return state.snapshot;
    },
    get version() {
      return state.snapshot.version;
    },
    stale: false,
    subscribe(listener) {
      state.listeners.push({ accessChanged: listener });
    },
    async reload() {
      await replica?.poll();
    },
    async change(plan, options) {
      replica?.requireReachable();
      return replaceAccess(store, (current) => replacementOf(current, plan(current)), options);
    },
    async close() {},
  };
}
