import { z } from "zod";
import { wholePlainName } from "../../query/names.ts";
import { permissionClasses } from "../../query/permissions.ts";
import {
  isAppScheme,
  isConfiguredRedirect,
  isHttpsHost,
  isIssuer,
  isMcpUrl,
} from "../addresses.ts";
import { credentialKeys, flag, refuse, refuseTwoCredentials, text, wholeNumber } from "../kinds.ts";

const prefix = text("1 to 63 letters, digits, - and _", /^[A-Za-z0-9_-]{1,63}$/);
const claim = text("the name of a claim", /^[!-~]{1,128}$/);
const toolName = text("1 to 128 visible ASCII characters", /^[!-~]{1,128}$/);
const plainName = text("1 to 63 letters, digits, - and _", wholePlainName);

const authorizationServer = z.strictObject({
  issuer: text("an https:// URL without query and fragment, or http:// on loopback", isIssuer).meta(
    {
      description:
        "Issuer of tokens that are accepted, exactly as its tokens and metadata spell it.",
      examples: ["https://login.example.com/realms/staff"],
    },
  ),
  prefix: prefix.meta({
    description: "Its users are `prefix:username` in the access file; no two issuers share one.",
    examples: ["staff"],
  }),
  username_claim: claim
    .default("sub")
    .describe("Claim that holds the username; `email` counts only if `email_verified` is true."),
  audience: text("1 to 255 visible ASCII characters", (name) => /^[!-~]{1,255}$/.test(name))
    .optional()
    .meta({
      description:
        "The `aud` of its tokens, where it cannot name the resource; absent: the public URL of /mcp.",
      examples: ["api://gatehouse"],
    }),
});

const tool = z
  .strictObject({
    name: toolName.meta({ description: "Name of the tool, exactly.", examples: ["run_report"] }),
    permission: z.enum(permissionClasses).meta({
      description: "Right that a caller of the tool needs on the database.",
      examples: ["SELECT"],
    }),
    database: plainName.optional().meta({
      description: "Database that the tool works on, if it is always the same.",
      examples: ["main"],
    }),
    database_argument: toolName.optional().meta({
      description: "Argument of the tool that names the database.",
      examples: ["database"],
    }),
  })
  .superRefine(({ database, database_argument: argument }, context) => {
    if ((database === undefined) !== (argument === undefined)) return;
    refuse(context, ["database"], "either database or database_argument");
  });

const appScheme = text("a scheme in lower case that no browser has a use for", isAppScheme);
const documentHost = text(
  "a host of https URLs, or host:port, in lower case and without *",
  isHttpsHost,
);

const client = z.strictObject({
  client_id: toolName.meta({ description: "Identifier of the client.", examples: ["desktop"] }),
  client_name: text("1 to 100 characters", /^\P{Cc}{1,100}$/u).meta({
    description: "What the consent page calls it.",
    examples: ["Desktop assistant"],
  }),
  redirect_uris: z
    .array(
      text(
        "https:// URLs, http:// on loopback, or app.scheme:/path, without fragment",
        isConfiguredRedirect,
      ),
    )
    .min(1)
    .meta({
      description: "Where the browser may be sent back to; on loopback any port will do.",
      examples: [["http://127.0.0.1/callback"]],
    }),
});

/** No two elements may have the same value of a key. */
function distinct<Key extends string>(key: Key) {
  return (elements: Record<Key, string>[], context: z.core.$RefinementCtx): void => {
    const seen = new Set<string>();
    for (const [index, { [key]: value }] of elements.entries()) {
      if (seen.has(value)) refuse(context, [index, key], "a value that no other one has");
      seen.add(value);
    }
  };
}

const MEBIBYTE = 1024 * 1024;

/** `[mcp]`: the Model Context Protocol endpoint. */
export const mcp = z
  .strictObject({
    enabled: flag(true, "Whether /mcp is served."),
    upstream: text("http://host[:port]/path", isMcpUrl)
      .optional()
      .meta({
        description:
          "MCP server that stands behind /mcp; absent: the embedded one, over the database.",
        examples: ["http://127.0.0.1:9200/mcp"],
      }),
    ...credentialKeys("That server's", "/run/secrets/mcp"),
    max_body_bytes: wholeNumber(1024, 1024 * MEBIBYTE)
      .default(MEBIBYTE)
      .meta({
        description: "Largest message to /mcp, in bytes; a larger one is answered with 413.",
        live: true,
      }),
    row_limit: wholeNumber(1, 100_000).default(500).meta({
      description: "Rows that one call of the embedded server's select returns at most.",
      live: true,
    }),
    result_bytes: wholeNumber(16 * 1024, 16 * MEBIBYTE)
      .default(MEBIBYTE)
      .meta({
        description:
          "Bytes that one call of the embedded server's tools returns at most; a longer list is truncated.",
        live: true,
      }),
    app_schemes: z
      .array(appScheme)
      .default(["cursor", "vscode", "vscode-insiders", "windsurf", "zed"])
      .describe(
        "Schemes without a dot that redirects to native apps may have; those with one always may.",
      ),
    registrations_per_hour: wholeNumber(1, 1_000_000)
      .default(200)
      .describe(
        "OAuth clients that may register from one address in an hour; then 429. Ten times as many from a reverse proxy with everyone behind it.",
      ),
    private_client_hosts: z
      .array(documentHost)
      .default([])
      .meta({
        description:
          "Hosts whose client metadata documents are fetched although their addresses are private.",
        examples: [["apps.corp.example", "tools.corp.example:8443"]],
      }),
    tools: z.array(tool).superRefine(distinct("name")).default([]).meta({
      description: "Tools of mcp.upstream that may be called; every other one is denied.",
      live: true,
    }),
    authorization_servers: z
      .array(authorizationServer)
      .superRefine(distinct("issuer"))
      .superRefine(distinct("prefix"))
      .default([])
      .describe("External authorization servers, in the place of the embedded one."),
    clients: z
      .array(client)
      .superRefine(distinct("client_id"))
      .default([])
      .describe("Clients that the embedded authorization server knows without registration."),
  })
  .superRefine(refuseTwoCredentials)
  .prefault({})
  .describe("The Model Context Protocol endpoint.");
