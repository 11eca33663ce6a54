import { Turns } from "../../core/base/queues.ts";
import { Refusal } from "../../core/base/refusal.ts";
import {
  canSign,
  type KeyChange,
  type KeyStore,
  type StoredKey,
  storedKeyShape,
} from "../../core/identity/key-store.ts";
import type { StoreAccess } from "./access-store.ts";
import type { Database, Query, Row } from "./database.ts";
import { type SealedTable, type Secrets, StoreKeyError } from "./secrets.ts";

export const sealedKeys: SealedTable = {
  table: "gatehouse.keys",
  keys: ["ring", "kid"],
  column: "sealed",
  contextOf: ({ ring, kid }) => `the signing key ${kid} of ${ring}`,
};

async function decryptKey(row: Row, secrets: Secrets): Promise<StoredKey> {
  const text = secrets.decrypt(String(row.sealed), sealedKeys.contextOf(row));
  const key = storedKeyShape.safeParse(JSON.parse(text)).data;
  if (key?.kid === row.kid && key !== undefined && (await canSign(key))) return key;
  throw new StoreKeyError(`${sealedKeys.contextOf(row)} is not a private key`);
}

async function readKeys(query: Query, ring: string, secrets: Secrets): Promise<StoredKey[]> {
  const sql = "select * from gatehouse.keys where ring = $1 order by created desc, kid desc";
  const rows = await query(sql, [ring]);
  return Promise.all(rows.map((row) => decryptKey(row, secrets)));
}

async function apply(query: Query, ring: string, change: KeyChange, secrets: Secrets) {
  if (change.kind === "delete") {
    await query("delete from gatehouse.keys where ring = $1 and kid = $2", [ring, change.kid]);
    return;
  }
  const { kid, created } = change.key;
  const sealed = secrets.encrypt(JSON.stringify(change.key), sealedKeys.contextOf({ ring, kid }));
  await query(
    `insert into gatehouse.keys (ring, kid, created, sealed) values ($1, $2, $3, $4)
      on conflict (ring, kid) do update set sealed = excluded.sealed`,
    [ring, kid, created, sealed],
  );
}

/** The signing keys of one ring. Private keys are encrypted. */
export function keysInStore(
  store: StoreAccess,
  { query }: Database,
  secrets: Secrets,
  ring: string,
): KeyStore {
  const { state, writer } = store;
  /** True if the keys changed after they were last read, while nothing watched them. */
  let hasMissedChange = false;
  let listener: (() => Promise<void>) | undefined;
  state.listeners.push({
    async keysChanged(name) {
      if (name !== ring) return;
      if (listener === undefined) hasMissedChange = true;
      else await listener();
    },
  });
  return {
    place: `the store (${ring} keys)`,
    read() {
      hasMissedChange = false;
      return readKeys(query, ring, secrets);
    },
    async names() {
      const rows = await query("select kid from gatehouse.keys where ring = $1", [ring]);
      return rows.map(({ kid }) => String(kid));
    },
    async hadKeys() {
      const sql = `select 1 from gatehouse.log where kind = 'keys' and data->>'ring' = $1 limit 1`;
      return (await query(sql, [ring])).length > 0;
    },
    async change(plan) {
      await writer.append(async (turn) => {
        const changes = await plan(await readKeys(turn.query, ring, secrets));
        for (const change of changes) await apply(turn.query, ring, change, secrets);
        if (changes.length > 0) await turn.append({ change: { kind: "keys", ring } });
      });
    },
    // A change resolves only when it is in force at every replica.
    propagated: async () => {},
    async watch(load, onFailure) {
      const loads = new Turns();
      listener = () =>
        loads.run(load).catch((error: unknown) => {
          onFailure(error);
          // An unknown change does not count as applied.
          if (error instanceof Refusal && error.code === "store_unreachable") throw error;
        });
      if (hasMissedChange) await listener();
      return {
        async close() {
          listener = undefined;
          await loads.end();
        },
      };
    },
  };
}

export function addKeys(store: KeyStore, keys: readonly StoredKey[]): Promise<void> {
  return store.change(async (existing) => {
    const names = new Set(existing.map(({ kid }) => kid));
    return keys.filter(({ kid }) => !names.has(kid)).map((key) => ({ kind: "put", key }));
  });
}
