import { z } from "zod";
import { filePath, text, wholeNumber } from "../kinds.ts";
import { isServerUrl } from "../urls.ts";

/** The default name of the key file, which is in the service directory. */
export const storeKeyFile = "store.key";

const postgresUrl = text(
  "postgres://user@host:port/database",
  (url) => /^postgres(?:ql)?:/.test(url) && isServerUrl(url),
);

/** `[store]`: what several replicas share. */
export const store = z
  .strictObject({
    url: postgresUrl.optional().meta({
      description:
        "PostgreSQL database that several replicas share; absent: everything is in files of this one.",
      examples: ["postgres://gatehouse@db.example/gatehouse"],
      writeOnly: true,
    }),
    key_file: filePath()
      .default(storeKeyFile)
      .describe(
        "Lines of 32 random bytes in base64url, the same at every replica: the first encrypts what is secret in the store, all decrypt; the bare default name is in the service directory.",
      ),
    access: z
      .enum(["store", "file"])
      .default("store")
      .describe(
        "Where users and grants are: in the store, or in access_control_file, which is then each replica's own and never written; all else is shared either way.",
      ),
    max_staleness: wholeNumber(2, 3600)
      .default(10)
      .describe("Seconds for which a replica decides without having reached the store; then 503."),
  })
  .prefault({})
  .describe("What several replicas share, in PostgreSQL.");
