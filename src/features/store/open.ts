import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { LRUCache } from "lru-cache";
import * as z from "zod";
import { epochSeconds } from "../../core/base/clock.ts";
import { systemUser } from "../../core/base/files/guarded.ts";
import { invocation } from "../../core/base/product.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { hashId, KEY_BYTES } from "../../core/base/sealed-bytes.ts";
import { storeName } from "../../core/config/addresses.ts";
import type { Configuration } from "../../core/config/schema.ts";
import {
  type LiveRevocations,
  type Revocation,
  type RevocationStore,
  revocationEnd,
  revocationOfUser,
} from "../../core/identity/revocations.ts";
import type { LiveTokenInventory } from "../../core/identity/token.ts";
import type { TokenInventoryStore } from "../../core/identity/token-file.ts";
import { type SessionRegister, separateRegisters, sessionLimits } from "../mcp/proxy/sessions.ts";
import type { AuthorizationState } from "../oauth/server/state-store.ts";
import { SEAL_KEY } from "../oauth/server/state-store.ts";
import { openAccessStore, type StoreAccess } from "./access-store.ts";
import { stateInStore } from "./authorization-state.ts";
import { type Database, openDatabase, type Query } from "./database.ts";
import { keysInStore } from "./key-table.ts";
import { FORM, readHead } from "./log.ts";
import { MIGRATIONS, readMigrations } from "./migrations.ts";
import { CLOCK_TOLERANCE_MS, queryIfReachable, Replica } from "./replica.ts";
import { readSecrets, type Secrets, StoreKeyError } from "./secrets.ts";
import { SharedState } from "./state.ts";
import { openWriter, type WriterOptions } from "./writer.ts";

/** Epoch seconds by the fastest clock of all replicas, which may just have issued a token. */
async function latestClock(query: Query): Promise<number> {
  const [row] = await query(
    `select extract(epoch from clock_timestamp())
      + greatest(0, coalesce(max(ahead), 0)) + $1 as latest
      from gatehouse.leases where expires > clock_timestamp()`,
    [CLOCK_TOLERANCE_MS / 1000],
  );
  return Math.max(epochSeconds(), Math.floor(Number(row?.latest)));
}

function revocationWriter(store: StoreAccess): Omit<RevocationStore, "read"> {
  const { state, writer } = store;
  async function add(revocationOf: (query: Query) => Promise<Revocation>): Promise<void> {
    await writer.append(async (turn) => {
      const revocation = await revocationOf(turn.query);
      await turn.append({
        change: { kind: "revocation", revocation },
        ends: revocationEnd(revocation),
      });
    });
  }
  return {
    revoke: (revocation) => add(async () => revocation),
    revokeUser: (user, latestIssue) =>
      add(async (query) =>
        revocationOfUser(state.revocations, user, latestIssue, await latestClock(query)),
      ),
  };
}

function openRevocationStore(store: StoreAccess): LiveRevocations {
  const { state, replica } = store;
  return {
    ...revocationWriter(store),
    isRevoked(token) {
      replica?.requireFresh();
      return state.revocations.isRevoked(token);
    },
    earliestIssue(username) {
      replica?.requireFresh();
      return state.revocations.earliestIssue(username);
    },
    get users() {
      return state.revokedUsers;
    },
    stale: false,
    async reload() {
      await replica?.poll();
    },
    async close() {},
  };
}

function tokenStore({ state, writer }: StoreAccess): TokenInventoryStore {
  return {
    read: async () => state.tokens,
    add: (token) =>
      writer.append((turn) =>
        turn.append({ change: { kind: "token", token }, ends: token.expiresAt }),
      ),
  };
}

function openInventory({ state: { tokens }, replica }: StoreAccess): LiveTokenInventory {
  return {
    index: tokens,
    requireFresh: () => replica?.requireFresh(),
    // A token is issued only when every replica knows it.
    async reload() {},
    async close() {},
  };
}

/** The owner of a session never changes, but the session may end at another replica. */
const OWNER_CACHE = { max: 10_000, ttl: 30_000 };

const { total, perUser, idleMs } = sessionLimits;
const live = `used > clock_timestamp() - interval '${idleMs / 1000} seconds'`;
const openSql = `insert into gatehouse.mcp_sessions as s (key, kind, username, used)
  values ($1, $2, $3, clock_timestamp()) on conflict (key) do update set used = excluded.used
  where s.kind = excluded.kind and s.username = excluded.username returning key`;
const useSql = `update gatehouse.mcp_sessions set used = clock_timestamp()
  where key = $1 and kind = $2 and username = $3 and ${live} returning key`;
const endSql = "delete from gatehouse.mcp_sessions where key = $1 and kind = $2";
/** Makes room by removing expired sessions and those idle longest, of one user and of all. */
const roomSql = `delete from gatehouse.mcp_sessions where key in (
  (select key from gatehouse.mcp_sessions where not ${live} order by used limit 100) union all
  (select key from gatehouse.mcp_sessions where username = $1 and kind = $2
    order by used desc offset ${perUser}) union all
  (select key from gatehouse.mcp_sessions where kind = $2 order by used desc offset ${total}))`;

/** The owners of sessions, or of tasks, of the MCP server behind the proxy. */
function openRegister(kind: string, replica: Replica, database: Database): SessionRegister {
  const owners = new LRUCache<string, string>(OWNER_CACHE);
  const query = queryIfReachable(database, replica);
  return {
    async open(id, username) {
      const key = hashId(id);
      const [opened] = await query(openSql, [key, kind, username]);
      await query(roomSql, [username, kind]);
      if (opened !== undefined) owners.set(key, username);
      return opened !== undefined;
    },
    async use(id, username) {
      const key = hashId(id);
      const owner = owners.get(key);
      if (owner !== undefined) return owner === username;
      const [used] = await query(useSql, [key, kind, username]);
      if (used !== undefined) owners.set(key, username);
      return used !== undefined;
    },
    end(id) {
      const key = hashId(id);
      owners.delete(key);
      // If this fails, the entry expires when idle.
      query(endSql, [key, kind]).catch(() => {});
    },
  };
}

const LOGIN_RING = "login";
const AUTHORIZATION_RING = "oauth";

/** The store cannot be used in its current state; the message says what to do. */
class StoreError extends Error {}

export interface Store {
  readonly database: Database;
  readonly secrets: Secrets;
  close(): Promise<void>;
}

/** Connects to the store, with or without tables. @throws StoreError without `[store]` */
export function connectStore({ store }: Configuration): Database {
  if (store.url === undefined) throw new StoreError("no store is configured: set store.url");
  return openDatabase(store.url);
}

/** @throws Refusal `store_unreachable`, or StoreError if the tables belong to another release */
async function requireTables(database: Database, name: string): Promise<void> {
  const applied = await readMigrations(database.query);
  if (applied >= MIGRATIONS) return;
  const state = applied === 0 ? "has no tables yet" : "has tables of an older version";
  throw new StoreError(`the store ${name} ${state}: create them with \`${invocation} store init\``);
}

async function openSecrets({ store, auth }: Configuration): Promise<Secrets> {
  try {
    return await readSecrets(store.key_file, { checkRead: auth.check_permissions });
  } catch (error) {
    const isMissing = error instanceof Error && "code" in error && error.code === "ENOENT";
    if (!isMissing) throw error;
    const remedy = `copy it from the host where \`${invocation} store init\` created it`;
    throw new StoreKeyError(`${store.key_file} is missing: ${remedy}`);
  }
}

const RETRY_MS = 1000;

/**
 * @param onWait if given, waits until the store answers, and is called with the reason
 * @throws StoreError, StoreKeyError, or UnsafeFileError about the key file
 */
export async function openStore(
  configuration: Configuration,
  onWait?: (reason: string) => void,
): Promise<Store> {
  const database = connectStore(configuration);
  const name = storeName(configuration) ?? "";
  for (let isFirst = true; ; isFirst = false) {
    try {
      await requireTables(database, name);
      return { database, secrets: await openSecrets(configuration), close: () => database.close() };
    } catch (error) {
      const isUnreachable = error instanceof Refusal && error.code === "store_unreachable";
      const reason = (isUnreachable && error.detail) || "it is too slow";
      const sentence = `the store ${name} does not answer: ${reason}`;
      if (onWait === undefined || !isUnreachable) {
        await database.close();
        throw isUnreachable ? new StoreError(sentence, { cause: error }) : error;
      }
      if (isFirst) onWait(sentence);
      await delay(RETRY_MS);
    }
  }
}

export type StoreReplica = Awaited<ReturnType<typeof openReplica>>;

/** What replicas and commands have in common. */
function openShared(store: Store, state: SharedState, options: WriterOptions) {
  const { database, secrets } = store;
  const writer = openWriter(database, state, options);
  const shared: StoreAccess = { state, writer, replica: options.replica };
  const records = stateInStore(shared, database, secrets);
  const authorization: AuthorizationState = {
    store: records,
    keys: keysInStore(shared, database, secrets, AUTHORIZATION_RING),
    sealKey: () => records.secret(SEAL_KEY, randomBytes(KEY_BYTES)),
  };
  const keys = keysInStore(shared, database, secrets, LOGIN_RING);
  return { ...shared, authorization, access: openAccessStore(shared), keys };
}

/** Takes a lease and follows the shared state. Both end with the stack. */
export async function openReplica(
  store: Store,
  { store: { max_staleness: maxStaleness } }: Configuration,
  observers: { onUnreachable: (reason: string) => void; onReachable: () => void },
  opened: AsyncDisposableStack,
) {
  const replica = await Replica.open(store.database, { maxStaleness, ...observers });
  opened.defer(() => replica.close());
  const author = { kind: "store", name: replica.name } as const;
  const shared = openShared(store, replica.state, { author, replica });
  opened.defer(() => shared.authorization.store.close());
  return {
    ...shared,
    store,
    replica,
    sessions: separateRegisters(
      openRegister("session", replica, store.database),
      openRegister("task", replica, store.database),
    ),
    revocations: openRevocationStore(shared),
    inventory: openInventory(shared),
  };
}

export type StoreOperator = Awaited<ReturnType<typeof operateStore>>;

/** @param onWait called once a change has waited a second for other replicas */
export async function operateStore(store: Store, onWait?: (sentence: string) => void) {
  const state = await SharedState.load(store.database);
  const author = { kind: "cli", name: systemUser() } as const;
  const shared = openShared(store, state, { author, onWait });
  return {
    ...shared,
    revocations: {
      ...revocationWriter(shared),
      read: async () => Object.assign(state.revocations, { count: state.revocations.size }),
    },
    inventory: tokenStore(shared),
  };
}

const leaseShape = z.object({
  name: z.string(),
  since: z.coerce.date(),
  applied: z.int(),
  form: z.int(),
  /** Seconds; negative after expiry. */
  rest: z.number(),
});

/** Leases that expired long ago belong to replicas that no longer exist. */
const leasesSql = `select name, since, applied, form,
    extract(epoch from expires - clock_timestamp())::float8 as rest
  from gatehouse.leases where expires > clock_timestamp() - interval '1 hour' order by name`;

export async function readStatus(database: Database) {
  const { version, accessVersion, form } = await readHead(database.query);
  const leases = await database.query(leasesSql);
  return {
    version,
    accessVersion,
    form,
    readableForm: FORM,
    migrations: await readMigrations(database.query),
    knownMigrations: MIGRATIONS,
    replicas: leases.map((lease) => leaseShape.parse(lease)),
  };
}
