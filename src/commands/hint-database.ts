import { request } from "node:http";
import { json } from "node:stream/consumers";
import * as z from "zod";
import type { Snapshot } from "../access/snapshot.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { DatabaseFiles } from "../engine/sqlite/files.ts";
import { dataDirectoryOf, hasOwnEngine } from "../gateway/own-engine.ts";
import { parseTarget } from "../upstream/target.ts";

/** Milliseconds that a database has to say what it holds. */
const ASK_MS = 1000;

const schemaShape = z.object({ data: z.object({ databases: z.array(z.string()) }) });

/** What an engine of the gateway's own keeps; undefined before its first start. */
function ownDatabases(directory: string): string[] | undefined {
  try {
    return new DatabaseFiles(directory).names();
  } catch {
    return undefined;
  }
}

/** What `gatehouse engine` says that it holds; undefined if it does not answer, or is another's. */
async function askUpstream({ configuration }: LoadedConfiguration): Promise<string[] | undefined> {
  const { url, urls: [first] = [url], authorization } = configuration.upstream;
  if (first === undefined || first.startsWith("https:")) return undefined;
  const { origin, socketPath } = parseTarget(first);
  const { promise, resolve } = Promise.withResolvers<string[] | undefined>();
  const asked = request(`${origin}/schema`, {
    ...(socketPath === undefined ? {} : { socketPath }),
    headers: authorization === undefined ? {} : { authorization },
    signal: AbortSignal.timeout(ASK_MS),
    agent: false,
  });
  asked.on("error", () => resolve(undefined));
  asked.on("response", (response) => {
    json(response).then(
      (body) => resolve(schemaShape.safeParse(body).data?.data.databases),
      () => resolve(undefined),
    );
  });
  asked.end();
  return promise;
}

async function existing(loaded: LoadedConfiguration): Promise<readonly string[] | undefined> {
  const directory = dataDirectoryOf(loaded);
  if (directory !== undefined) return ownDatabases(directory);
  return hasOwnEngine(loaded) ? undefined : askUpstream(loaded);
}

/**
 * A database to be named in a hint: the default one where it is there, else one that is there, as
 * far as the database or the access file tells; else `<database>`.
 */
export async function hintDatabase(
  loaded: LoadedConfiguration,
  { grants }: Snapshot,
): Promise<string> {
  const preferred = loaded.configuration.auth.default_database;
  const found = await existing(loaded);
  const isOwn = dataDirectoryOf(loaded) !== undefined;
  // Before the first start there is none, and that will make `main`.
  if (found === undefined && isOwn) return preferred;
  const named = grants.values().flatMap((own) => own.keys().filter((name) => name !== "*"));
  const names = found ?? [...named];
  return names.includes(preferred) ? preferred : (names[0] ?? "<database>");
}
