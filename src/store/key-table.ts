import {
  canSign,
  type KeyChange,
  type KeyStore,
  type StoredKey,
  storedKeyShape,
} from "../identity/key-store.ts";
import type { StoreAccess } from "./access-store.ts";
import type { Database, Query, Row } from "./database.ts";
import { type Secrets, StoreKeyError } from "./secrets.ts";

/** Bound to the ciphertext, so that a key moved to another row does not decrypt. */
function placeOf(ring: string, kid: unknown): string {
  return `the signing key ${kid} of ${ring}`;
}

async function open(row: Row, ring: string, secrets: Secrets): Promise<StoredKey> {
  const place = placeOf(ring, row.kid);
  const text = secrets.decrypt(String(row.sealed), place);
  const key = storedKeyShape.safeParse(JSON.parse(text)).data;
  if (key?.kid === row.kid && key !== undefined && (await canSign(key))) return key;
  throw new StoreKeyError(`${place} is no private key`);
}

async function readKeys(query: Query, ring: string, secrets: Secrets): Promise<StoredKey[]> {
  const sql =
    "select kid, sealed from gatehouse.keys where ring = $1 order by created desc, kid desc";
  const rows = await query(sql, [ring]);
  return Promise.all(rows.map((row) => open(row, ring, secrets)));
}

async function apply(query: Query, ring: string, change: KeyChange, secrets: Secrets) {
  if (change.kind === "delete") {
    await query("delete from gatehouse.keys where ring = $1 and kid = $2", [ring, change.kid]);
    return;
  }
  const { kid, created } = change.key;
  const sealed = secrets.encrypt(JSON.stringify(change.key), placeOf(ring, kid));
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
  const { state, writer, replica, author } = store;
  /** True if the keys changed after they were last read, while nothing watched them. */
  let isMissed = false;
  const noted = async () => {
    isMissed = true;
  };
  let changed: () => Promise<void> = noted;
  state.listeners.push({
    keysChanged: async (name) => {
      if (name === ring) await changed();
    },
  });
  return {
    place: `the store (${ring} keys)`,
    read() {
      isMissed = false;
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
      replica?.requireReachable();
      await writer.append(async (turn) => {
        const changes = await plan(await readKeys(turn.query, ring, secrets));
        for (const change of changes) await apply(turn.query, ring, change, secrets);
        if (changes.length > 0) await turn.append({ change: { kind: "keys", ring } });
      }, author);
    },
    // A change resolves only when it is in force at every replica.
    propagated: async () => {},
    watch(onChange) {
      changed = onChange;
      if (isMissed) void onChange();
      return {
        async close() {
          changed = noted;
        },
      };
    },
  };
}

export function addKeys(store: KeyStore, keys: readonly StoredKey[]): Promise<void> {
  return store.change(async (held) => {
    const names = new Set(held.map(({ kid }) => kid));
    return keys.filter(({ kid }) => !names.has(kid)).map((key) => ({ kind: "put", key }));
  });
}

/** Encrypts all keys again with the first line of the key file. @returns how many there are */
export function rekey(database: Database, secrets: Secrets): Promise<number> {
  return database.transaction(async (query) => {
    await query("select from gatehouse.head for update");
    const rows = await query("select ring, kid, sealed from gatehouse.keys");
    for (const { ring, kid, sealed } of rows) {
      const place = placeOf(String(ring), kid);
      const anew = secrets.encrypt(secrets.decrypt(String(sealed), place), place);
      const sql = "update gatehouse.keys set sealed = $3 where ring = $1 and kid = $2";
      await query(sql, [ring, kid, anew]);
    }
    return rows.length;
  });
}
