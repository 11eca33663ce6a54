import { z } from "zod";
import { isForwardableHeader } from "../headers.ts";
import { seconds, text, wholeNumber } from "../kinds.ts";
import { isBaseUrl, normalBaseUrl, unixSocketPath } from "../urls.ts";
import { credentialKeys, refuseTwoCredentials } from "./credential.ts";

const url = text(
  "http://host:port, https://host:port or unix:/path, without path, query and credentials",
  (url) => isBaseUrl(url) || isUnixSocketUrl(url),
).overwrite(normalBaseUrl);
const headerName = text(
  "a header name that is not hop-by-hop, no credential, and not set by the gateway itself",
  isForwardableHeader,
);

function isUnixSocketUrl(url: string): boolean {
  const path = unixSocketPath(url);
  return path !== undefined && path !== "" && !path.includes("\0");
}

/** `[upstream]`: the database behind the gateway. */
export const upstream = z
  .strictObject({
    url: url.optional().meta({
      description: "Where the database listens; absent: the embedded engine is started.",
      examples: ["http://127.0.0.1:9090"],
    }),
    ...credentialKeys("The upstream's", "/run/secrets/upstream"),
    forward_authorization: z
      .boolean()
      .default(false)
      .describe("Whether the client's own Authorization header goes upstream."),
    forward_headers: z
      .array(headerName)
      .default([])
      .meta({
        description: "Further request headers that go upstream.",
        examples: [["X-Tenant"]],
      }),
    connections: wholeNumber(1, 10_000)
      .default(64)
      .describe("Connections to the upstream at one time."),
    connect_timeout: seconds().default(5).describe("Seconds to wait for a connection."),
    response_timeout: seconds()
      .default(30)
      .describe("Seconds to wait for the head of an answer, and between parts of its body."),
    query_form: z
      .enum(["keyed", "op"])
      .default("keyed")
      .describe('Outer shape of queries: {"Select": {...}}, or {"op": "select", ...}.'),
  })
  .superRefine(refuseTwoCredentials)
  .prefault({})
  .describe("The database behind the gateway.");
