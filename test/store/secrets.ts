/** Looks for secrets in what a thief of the store's server would have. */
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import type { TestStore } from "./kit.ts";

/** Base64 of bytes that stand somewhere in others: as far as their neighbours do not change it. */
function base64Within(bytes: Buffer): string[] {
  return [0, 1, 2].map((offset) => {
    const text = Buffer.concat([Buffer.alloc(offset), bytes]).toString("base64");
    const [head, tail] = [Math.ceil((offset * 8) / 6), (offset + bytes.length) % 3 === 0 ? 0 : 4];
    return text.slice(head, text.length - tail);
  });
}

/** The ways in which a secret may be written. */
export function spellings(secret: string | Buffer): string[] {
  const bytes = Buffer.from(secret);
  const base64 = base64Within(bytes);
  const hex = bytes.toString("hex");
  return [
    ...[bytes.toString("latin1"), hex, hex.toUpperCase()],
    ...base64,
    ...base64.map((text) => text.replaceAll("+", "-").replaceAll("/", "_")),
  ];
}

/** All rows of the store as text, table by table, as a dump has them. */
export async function dump(store: TestStore): Promise<string> {
  const tables = await store.sql(
    "select tablename as name from pg_tables where schemaname = 'gatehouse'",
  );
  const parts = tables.map(async ({ name }) => {
    const rows = await store.sql(`select t::text as row from gatehouse.${name} t`);
    return `${name}\n${rows.map(({ row }) => row).join("\n")}`;
  });
  return (await Promise.all(parts)).join("\n");
}

/** All that the server has on its disk of the store's database, and its write-ahead log. */
export async function filesOf(store: TestStore): Promise<Buffer[]> {
  await store.sql("checkpoint");
  const [place] = await store.sql(
    "select current_setting('data_directory') as directory, oid from pg_database where datname = current_database()",
  );
  const root = String(place?.directory);
  return [path.join(root, "base", String(place?.oid)), path.join(root, "pg_wal")].flatMap((part) =>
    readdirSync(part, { withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map(({ name }) => readFileSync(path.join(part, name))),
  );
}
