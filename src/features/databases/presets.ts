import type { PresetName } from "../../core/config/upstream.ts";
import type { Preset } from "./preset.ts";
import type { Suite } from "./suite.ts";

type Load<One> = Readonly<Record<PresetName, () => Promise<One>>>;

const presets: Load<Preset> = {
  chroma: async () => (await import("./chroma.ts")).chroma,
  opensearch: async () => (await import("./opensearch.ts")).opensearch,
  couchdb: async () => (await import("./couchdb.ts")).couchdb,
};

const suites: Load<Suite> = {
  chroma: async () => (await import("./chroma-suite.ts")).chromaSuite,
  opensearch: async () => (await import("./opensearch-suite.ts")).opensearchSuite,
  couchdb: async () => (await import("./couchdb-suite.ts")).couchdbSuite,
};

/** Only the one that is used is loaded. */
export function loadPreset(name: PresetName): Promise<Preset> {
  return presets[name]();
}

export function suiteFor(name: PresetName): Promise<Suite> {
  return suites[name]();
}
