import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { Client as EarlierClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as EarlierTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import type { Test } from "tap";

const identity = { name: "test", version: "1.0.0" };

function textOf(content: unknown): string {
  const [first]: unknown[] = Array.isArray(content) ? content : [];
  const isText = typeof first === "object" && first !== null && "text" in first;
  return isText ? String(first.text) : "";
}

function asRecord(value: unknown): Record<string, unknown> | undefined {
  return typeof value === "object" && value !== null ? { ...value } : undefined;
}

function withToken(token: string | undefined): { requestInit?: RequestInit } {
  if (token === undefined) return {};
  return { requestInit: { headers: { authorization: `Bearer ${token}` } } };
}

function toolsOf(client: Client | EarlierClient, version: string) {
  return {
    version,
    toolNames: async () => (await client.listTools()).tools.map(({ name }) => name),
    async call(name: string, args: Record<string, unknown>) {
      const { isError, content, structuredContent } = await client.callTool({
        name,
        arguments: args,
      });
      const structured = asRecord(structuredContent);
      return { isError: isError === true, text: textOf(content), structured };
    },
    resourceUris: async () => (await client.listResources()).resources.map(({ uri }) => uri),
    read: async (uri: string) => textOf((await client.readResource({ uri })).contents),
  };
}

export type AnyClient = ReturnType<typeof toolsOf>;
export type ToolAnswer = Awaited<ReturnType<AnyClient["call"]>>;

/**
 * A client of the current library that speaks 2026-07-28.
 *
 * @param onUrl shows a page to the user; without it, the client declares that it cannot
 */
export async function connectStateless(
  t: Test,
  url: string,
  token?: string,
  onUrl?: (url: string) => Promise<"accept" | "decline">,
) {
  const capabilities = onUrl === undefined ? {} : { elicitation: { url: {} } };
  const versionNegotiation = { mode: { pin: "2026-07-28" } } as const;
  const client = new Client(identity, { capabilities, versionNegotiation });
  if (onUrl !== undefined) {
    client.setRequestHandler("elicitation/create", async ({ params }) => ({
      action: "url" in params ? await onUrl(params.url) : "decline",
    }));
  }
  await client.connect(new StreamableHTTPClientTransport(new URL(url), withToken(token)));
  t.teardown(() => client.close());
  return toolsOf(client, "2026-07-28");
}

/** A client of the earlier library, which begins with a handshake. */
export async function connectEarlier(t: Test, url: string, token?: string) {
  const client = new EarlierClient(identity);
  const transport = new EarlierTransport(new URL(url), withToken(token));
  await client.connect(transport);
  t.teardown(() => client.close());
  return toolsOf(client, transport.protocolVersion ?? "");
}

export const eras = [
  ["a client of 2026-07-28", connectStateless],
  ["a client of earlier revisions", connectEarlier],
] as const;
