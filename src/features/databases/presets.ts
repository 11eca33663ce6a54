import type { PresetName } from "../../core/config/upstream.ts";
import type { Preset } from "./preset.ts";
import type { Suite } from "./suite.ts";

/** Only the one that is used is loaded. */
export const presets: Readonly<Record<PresetName, () => Promise<Preset>>> = {
  chroma: async () => (await import("./chroma.ts")).chroma,
  opensearch: async () => (await import("./opensearch.ts")).opensearch,
  couchdb: async () => (await import("./couchdb.ts")).couchdb,
};

export const suites: Readonly<Record<PresetName, () => Promise<Suite>>> = {
  chroma: async () => (await import("./chroma-suite.ts")).chromaSuite,
  opensearch: async () => (await import("./opensearch-suite.ts")).opensearchSuite,
  couchdb: async () => (await import("./couchdb-suite.ts")).couchdbSuite,
};
