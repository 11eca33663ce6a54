import type { Preset } from "./preset.ts";

type Load = () => Promise<Preset>;

/** Only the one that is used is loaded. */
export const loaders = new Map<Preset["name"], Load>([
  ["chroma", async () => (await import("./chroma.ts")).chroma],
  ["opensearch", async () => (await import("./opensearch.ts")).opensearch],
  ["couchdb", async () => (await import("./couchdb.ts")).couchdb],
]);

export function presetOf(name: Preset["name"]): Promise<Preset> {
  const load = loaders.get(name);
  if (load === undefined) throw new Error(`there is no preset ${name}`);
  return load();
}
