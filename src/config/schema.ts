/** gateway.toml as one schema: types, defaults, bounds and descriptions of every key. */
import { z } from "zod";
import { isLoopback } from "./addresses.ts";
import { filePath, listenAddress, refuse, seconds } from "./kinds.ts";
import { auth } from "./sections/auth.ts";
import { consolePages } from "./sections/console.ts";
import { mcp } from "./sections/mcp.ts";
import { query } from "./sections/query.ts";
import { routes } from "./sections/routes.ts";
import { server } from "./sections/server.ts";
import { store } from "./sections/store.ts";
import { upstream } from "./sections/upstream.ts";

const metrics = z
  .strictObject({
    listen: listenAddress()
      .optional()
      .meta({
        description:
          "Where Prometheus metrics are served, at /metrics on a listener of their own; absent: nowhere.",
        examples: ["127.0.0.1:9464"],
      }),
  })
  .prefault({})
  .describe("Prometheus metrics.");

const audit = z
  .strictObject({
    file: filePath()
      .optional()
      .meta({
        description: "File that the audit log is appended to; absent: standard output.",
        examples: ["audit.log"],
      }),
  })
  .prefault({})
  .describe("The audit log: one line for each decision.");

const approvals = z
  .strictObject({
    wait: seconds().default(600).meta({
      description:
        "How long what needs an approval waits for one, and how long one that was given can be used, in seconds.",
      live: true,
    }),
  })
  .prefault({})
  .describe("What `require_approval` in the access file asks for.");

/** The schema of gateway.toml. Descriptions, bounds and examples are public: the docs print them. */
export const configurationSchema = z
  .strictObject({
    server,
    auth,
    upstream,
    query,
    routes,
    metrics,
    audit,
    mcp,
    store,
    console: consolePages,
    approvals,
  })
  .superRefine(
    ({ server, auth }, context) => {
      if (auth.enabled || auth.insecure_allow_remote || isLoopback(server.host)) return;
      refuse(
        context,
        ["auth", "enabled"],
        `true, since other machines can reach server.host ${JSON.stringify(server.host)}; ` +
          'to go without authentication set server.host = "127.0.0.1", ' +
          "or accept the risk with auth.insecure_allow_remote = true",
      );
    },
    { when: ({ issues }) => !issues.some(({ path }) => isOneOf(path?.[0], "server", "auth")) },
  )
  .superRefine(
    ({ server, console }, context) => {
      if (console.public_url === "" || console.public_url !== server.public_url) return;
      refuse(context, ["console", "public_url"], "another origin than server.public_url");
    },
    { when: ({ issues }) => !issues.some(({ path }) => isOneOf(path?.[0], "server", "console")) },
  )
  .superRefine(
    ({ server, upstream }, context) => {
      if (upstream.connections >= server.workers) return;
      const allowed = `at least one for each of server.workers, which is ${server.workers}`;
      refuse(context, ["upstream", "connections"], allowed);
    },
    { when: ({ issues }) => !issues.some(({ path }) => isOneOf(path?.[0], "server", "upstream")) },
  );

function isOneOf(section: PropertyKey | undefined, ...names: readonly string[]): boolean {
  return names.some((name) => name === section);
}

type Immutable<T> = T extends object ? { readonly [K in keyof T]: Immutable<T[K]> } : T;

/** A checked configuration: keys as in the file, every default filled in, frozen. */
export type Configuration = Immutable<z.output<typeof configurationSchema>>;
