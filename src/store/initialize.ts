import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import path from "node:path";
import type { Configuration } from "../config/schema.ts";
import { replaceFile } from "../files/atomic.ts";
import { ensureSigner } from "../identity/key-rotation.ts";
import type { Database } from "./database.ts";
import { migrate } from "./migrations.ts";
import { connectStore, openStore, operateStore, type StoreOperator } from "./open.ts";
import { makeSecretLine, StoreKeyError } from "./secrets.ts";

async function holdsKeys({ query }: Database): Promise<boolean> {
  return (await query("select 1 from gatehouse.keys limit 1")).length > 0;
}

/** @throws StoreKeyError if the store holds what another key file has encrypted */
async function makeKeyFile(file: string, database: Database): Promise<boolean> {
  if (existsSync(file)) return false;
  if (await holdsKeys(database)) {
    throw new StoreKeyError(
      `${file} is missing, and the store holds keys that it encrypts: copy it from another replica`,
    );
  }
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  await replaceFile(file, `${makeSecretLine()}\n`);
  return true;
}

interface Initialized {
  /** How many steps the tables took. */
  readonly migrations: number;
  readonly hasMadeKeyFile: boolean;
  readonly operator: StoreOperator;
}

/**
 * Makes what is not there yet of tables, key file and signing keys; brings tables of an older
 * version up to date.
 *
 * @throws Refusal `store_unreachable`, StoreKeyError, UnsafeFileError
 */
export async function initializeStore(configuration: Configuration): Promise<Initialized> {
  const database = connectStore(configuration);
  let migrations: number;
  let hasMadeKeyFile: boolean;
  try {
    migrations = await migrate(database);
    hasMadeKeyFile = await makeKeyFile(configuration.store.key_file, database);
  } finally {
    await database.close();
  }
  const operator = await operateStore(await openStore(configuration));
  await ensureSigner(operator.keys, configuration.auth.signing_algorithm);
  return { migrations, hasMadeKeyFile, operator };
}
