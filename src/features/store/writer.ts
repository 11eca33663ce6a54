import { AsyncLocalStorage } from "node:async_hooks";
import { setTimeout as delay } from "node:timers/promises";
import type { Replacement } from "../../core/access/record-change.ts";
import { Turns } from "../../core/base/queues.ts";
import { Refusal } from "../../core/base/refusal.ts";
import type { Author } from "../../core/observe/audit-line.ts";
import { CHANNEL, type Database, type Query, storeUnreachable } from "./database.ts";
import {
  FORM,
  type Head,
  type LogEntry,
  neededForm,
  parseEntry,
  readEntries,
  readHead,
  type StoredChange,
  writeExact,
  writtenChange,
  writtenReplacement,
} from "./log.ts";
import type { Replica } from "./replica.ts";
import { requireReadable, type SharedState } from "./state.ts";

interface Draft {
  readonly change: StoredChange;
  readonly before?: Replacement;
  /** Epoch seconds after which the entry has no effect. */
  readonly ends?: number;
}

/** A transaction with the exclusive right to write. */
interface Turn {
  readonly query: Query;
  readonly version: number;
  append(draft: Draft): Promise<void>;
}

/** Judges and writes while no other writer can. If it throws, everything is rolled back. */
type Judge = (turn: Turn) => Promise<void>;

const LOCK_TIMEOUT_MS = 5000;
const FIRST_PAUSE_MS = 5;
const MAX_PAUSE_MS = 250;
const REPORT_AFTER_MS = 1000;

export interface WriterOptions {
  /** Who makes a change, unless `append` names another author. */
  readonly author: Author;
  /**
   * Undefined for a command. Its lease is skipped, because its own changes are in force here at once.
   */
  readonly replica?: Replica;
  /** Called once a change has waited a second for other replicas. */
  readonly onWait?: ((sentence: string) => void) | undefined;
}

export type StoreWriter = ReturnType<typeof openWriter>;

/** Writes changes to the log one at a time. The row `head` is the lock of all writers. */
export function openWriter(database: Database, state: SharedState, options: WriterOptions) {
  const turns = new AsyncLocalStorage<Turn>();
  const writes = new Turns();

  /** @throws Refusal `store_unreachable` if the store has lost the change that was applied last */
  async function catchUp(query: Query, head: Head): Promise<void> {
    const { version, id } = state.position;
    if (head.id === id) return;
    const sql = "select id from gatehouse.log where version = $1 and id = $2";
    const [known] = await query(sql, [version, id]);
    if (known !== undefined) await state.apply(await readEntries(query, version));
    if (head.id === state.position.id) return;
    const detail = `the store is at version ${head.version} and lacks version ${version}, which is applied here`;
    throw storeUnreachable({ detail });
  }

  async function write(judge: Judge, author: Author) {
    const committed = await database.transaction(async (query) => {
      await query(`set local lock_timeout = ${LOCK_TIMEOUT_MS}`);
      const head = await readHead(query, true);
      requireReadable(head);
      await catchUp(query, head);
      const { longestLease, form } = await readLeases(query);
      const entries: LogEntry[] = [];
      const turn: Turn = {
        query,
        get version() {
          return head.version + entries.length + 1;
        },
        append: async (draft) => {
          if (neededForm(draft.change) > form) throw new Refusal("store_form_unknown");
          const entry = await insert(query, turn.version, draft, author);
          state.own.add(entry.id);
          entries.push(entry);
        },
      };
      await turns.run(turn, () => judge(turn));
      const { id } = entries.at(-1) ?? head;
      return { entries, version: turn.version - 1, id, longestLease };
    });
    try {
      await state.apply(committed.entries);
    } catch (cause) {
      // Committed but not in force here yet: the next poll applies it.
      throw new Refusal("store_uncertain", { cause });
    }
    return committed;
  }

  /**
   * Waits until all other replicas have applied a change or their leases have expired, but no
   * longer than the longest lease. By then, every poll that missed the change is too old to decide
   * by. The limit is for replicas that get no answers: their polls may renew a lease forever.
   *
   * @throws Refusal `store_uncertain` if the store has lost the change, for example by a failover
   */
  async function waitUntilInForce(committed: Awaited<ReturnType<typeof write>>): Promise<void> {
    const since = performance.now();
    const { version, id } = committed;
    const sql = `select count(*)::int as count, exists (
        select from gatehouse.log where version = $1 and id = $3
      ) as is_known, coalesce(max(extract(epoch from expires - sent)), 0) * 1000 as longest,
      string_agg(name, ', ' order by name) as names, max(expires) as until
      from gatehouse.leases
      where expires > clock_timestamp() and applied < $1 and replica is distinct from $2`;
    let { onWait } = options;
    const replica = options.replica?.id ?? null;
    let longest = committed.longestLease;
    let pause = FIRST_PAUSE_MS;
    for (;;) {
      const rows = await database.query(sql, [version, replica, id]).catch(() => undefined);
      const left = rows?.[0];
      if (left?.is_known === false) throw new Refusal("store_uncertain");
      if (left?.count === 0) return;
      longest = Math.max(longest, Number(left?.longest ?? 0));
      const waited = performance.now() - since;
      if (waited > longest) return;
      if (waited > REPORT_AFTER_MS && left?.until instanceof Date) {
        const until = left.until.toISOString();
        onWait?.(
          `the change is saved; waiting for replica ${left.names} until it applies the change or its lease expires at ${until}`,
        );
        onWait = undefined;
      }
      await delay(pause);
      pause = Math.min(2 * pause, MAX_PAUSE_MS);
    }
  }

  return {
    /**
     * Resolves when the change is in force wherever decisions are made: each replica has applied
     * it, or its lease has expired. What `judge` appends belongs to its transaction.
     *
     * @throws Refusal from `judge`, `store_unreachable` if nothing was changed, or `store_uncertain`
     */
    async append(judge: Judge, author: Author = options.author): Promise<void> {
      await options.replica?.requireReachable();
      const outer = turns.getStore();
      if (outer !== undefined) return judge(outer);
      await waitUntilInForce(await writes.run(() => write(judge, author)));
    },
  };
}

/** The newest form that all deciding replicas read, and the longest lease in milliseconds. */
async function readLeases(query: Query) {
  const sql = `select coalesce(min(form), $1) as form,
      coalesce(max(extract(epoch from expires - sent)), 0) as length
    from gatehouse.leases where expires > clock_timestamp()`;
  const [row] = await query(sql, [FORM]);
  return { form: Number(row?.form), longestLease: Number(row?.length) * 1000 };
}

const PRUNE_EVERY = 64;
/** Deletes what expired long enough ago and no replica still has to read. */
const pruneSql = `delete from gatehouse.log where kind in ('revocation', 'token')
  and ends < clock_timestamp() - interval '7 days' and version < least($1::bigint,
    (select min(applied) from gatehouse.leases where expires > clock_timestamp()))`;

async function insert(
  query: Query,
  version: number,
  { change, before, ends }: Draft,
  author: Author,
): Promise<LogEntry> {
  const data = writeExact(writtenChange(change));
  const replaced = before === undefined ? null : writeExact(writtenReplacement(before));
  const form = neededForm(change);
  const [row] = await query(
    `insert into gatehouse.log (version, id, form, author, kind, data, before, ends)
      values ($1, gen_random_uuid(), $2, $3, $4, $5, $6, to_timestamp($7))
      returning version, id, author, kind, data`,
    [version, form, JSON.stringify(author), change.kind, data, replaced, ends ?? null],
  );
  // Never write an entry that cannot be parsed again.
  const entry = parseEntry(row);
  await query(
    `update gatehouse.head set version = $1, id = $2, form = greatest(form, $3),
      access_version = case when $4 then $1 else access_version end`,
    [version, entry.id, form, change.kind === "access"],
  );
  if (version % PRUNE_EVERY === 0) await query(pruneSql, [version - 1]);
  await query("select pg_notify($1, $2)", [CHANNEL, String(version)]);
  return entry;
}
