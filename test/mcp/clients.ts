import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { Client as EarlierClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as EarlierTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import type { Test } from "tap";

/** What the tests need of a client, whichever library it is of. */
export interface AnyClient {
  /** The revision that was agreed on. */
  readonly version: string;
  /** The names of the tools that are listed. */
  toolNames(): Promise<string[]>;
  /** Calls a tool. */
  call(name: string, args: Record<string, unknown>): Promise<ToolAnswer>;
  /** The URIs of the resources that are listed. */
  resourceUris(): Promise<string[]>;
  /** The text of a resource. */
  read(uri: string): Promise<string>;
}

/** A tool's answer, as far as the tests look at it. */
export interface ToolAnswer {
  readonly isError: boolean;
  readonly text: string;
  readonly structured: Record<string, unknown> | undefined;
}

const identity = { name: "test", version: "1.0.0" };

function textOf(content: unknown): string {
  const [first]: unknown[] = Array.isArray(content) ? content : [];
  const isText = typeof first === "object" && first !== null && "text" in first;
  return isText ? String(first.text) : "";
}

function asRecord(value: unknown): Record<string, unknown> | undefined {
  return typeof value === "object" && value !== null ? { ...value } : undefined;
}

/** What a transport sends with each request. */
function asWhom(token: string | undefined): { requestInit?: RequestInit } {
  if (token === undefined) return {};
  return { requestInit: { headers: { authorization: `Bearer ${token}` } } };
}

/**
 * A client of the current library that speaks 2026-07-28.
 *
 * @param onUrl shows its user a page; without it, the client says that it cannot
 */
export async function connectStateless(
  t: Test,
  url: string,
  token?: string,
  onUrl?: (url: string) => Promise<"accept" | "decline">,
): Promise<AnyClient> {
  const capabilities = onUrl === undefined ? {} : { elicitation: { url: {} } };
  const versionNegotiation = { mode: { pin: "2026-07-28" } } as const;
  const client = new Client(identity, { capabilities, versionNegotiation });
  if (onUrl !== undefined) {
    client.setRequestHandler("elicitation/create", async ({ params }) => ({
      action: "url" in params ? await onUrl(params.url) : "decline",
    }));
  }
  await client.connect(new StreamableHTTPClientTransport(new URL(url), asWhom(token)));
  t.teardown(() => client.close());
  return {
    version: "2026-07-28",
    toolNames: async () => (await client.listTools()).tools.map(({ name }) => name),
    async call(name, args) {
      const { isError, content, structuredContent } = await client.callTool({
        name,
        arguments: args,
      });
      const structured = asRecord(structuredContent);
      return { isError: isError === true, text: textOf(content), structured };
    },
    resourceUris: async () => (await client.listResources()).resources.map(({ uri }) => uri),
    read: async (uri) => textOf((await client.readResource({ uri })).contents),
  };
}

/** A client of the earlier library, which begins by a handshake. */
export async function connectEarlier(t: Test, url: string, token?: string): Promise<AnyClient> {
  const client = new EarlierClient(identity);
  const transport = new EarlierTransport(new URL(url), asWhom(token));
  await client.connect(transport);
  t.teardown(() => client.close());
  return {
    version: transport.protocolVersion ?? "",
    toolNames: async () => (await client.listTools()).tools.map(({ name }) => name),
    async call(name, args) {
      const { isError, content, structuredContent } = await client.callTool({
        name,
        arguments: args,
      });
      const structured = asRecord(structuredContent);
      return { isError: isError === true, text: textOf(content), structured };
    },
    resourceUris: async () => (await client.listResources()).resources.map(({ uri }) => uri),
    read: async (uri) => textOf((await client.readResource({ uri })).contents),
  };
}
