import { McpServer, ResourceTemplate, type ServerOptions } from "@modelcontextprotocol/server";
import { z } from "zod";

const pixel = Buffer.from("a pixel, if one believes it").toString("base64");

function registerTools(server: McpServer, onCancelled: () => void): void {
  const text = (words: string) => ({ content: [{ type: "text" as const, text: words }] });
  const inDatabase = z.object({ database: z.string() });
  server.registerTool("test_simple_text", { description: "Answers with a text." }, () =>
    text("This is a simple text response for testing."),
  );
  server.registerTool("test_image_content", { description: "Answers with an image." }, () => ({
    content: [{ type: "image", data: pixel, mimeType: "image/png" }],
  }));
  server.registerTool("test_audio_content", { description: "Answers with a sound." }, () => ({
    content: [{ type: "audio", data: pixel, mimeType: "audio/wav" }],
  }));
  const resource = {
    uri: "test://embedded-resource",
    mimeType: "text/plain",
    text: "This is an embedded resource content.",
  };
  server.registerTool(
    "test_embedded_resource",
    { description: "Answers with a resource." },
    () => ({
      content: [{ type: "resource", resource }],
    }),
  );
  server.registerTool("test_multiple_content_types", { description: "Answers with all." }, () => ({
    content: [
      { type: "text", text: "Multiple content types test:" },
      { type: "image", data: pixel, mimeType: "image/png" },
      { type: "resource", resource },
    ],
  }));
  server.registerTool("test_error_handling", { description: "Fails." }, () => ({
    ...text("This tool intentionally returns an error for testing"),
    isError: true,
  }));
  server.registerTool(
    "test_tool_with_progress",
    { description: "Tells its progress." },
    async ({ mcpReq }) => {
      const progressToken = mcpReq._meta?.progressToken ?? 0;
      for (const progress of [0, 50, 100]) {
        const params = { progressToken, progress, total: 100 };
        await mcpReq.notify({ method: "notifications/progress", params });
      }
      return text("done");
    },
  );
  server.registerTool(
    "query_database",
    { description: "Asks.", inputSchema: inDatabase },
    ({ database }) => text(`asked ${database}`),
  );
  server.registerTool("wait", { description: "Waits until it is cancelled." }, ({ mcpReq }) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    mcpReq.signal.addEventListener("abort", () => {
      onCancelled();
      resolve();
    });
    return mcpReq
      .notify({ method: "notifications/message", params: { level: "info", data: "waiting" } })
      .then(() => promise)
      .then(() => text("cancelled"));
  });
}

function registerOthers(server: McpServer): void {
  const uri = "test://static-text";
  server.registerResource("text", uri, { mimeType: "text/plain" }, () => ({
    contents: [{ uri, mimeType: "text/plain", text: "This is the content of the static text." }],
  }));
  server.registerResource("binary", "test://static-binary", { mimeType: "image/png" }, () => ({
    contents: [{ uri: "test://static-binary", mimeType: "image/png", blob: pixel }],
  }));
  const template = new ResourceTemplate("test://template/{id}/data", { list: undefined });
  const json = { mimeType: "application/json" };
  server.registerResource("template", template, json, (at, { id }) => ({
    contents: [{ uri: at.href, ...json, text: JSON.stringify({ id, data: `Data for ID: ${id}` }) }],
  }));
  const says = (words: string) => ({
    messages: [{ role: "user" as const, content: { type: "text" as const, text: words } }],
  });
  server.registerPrompt("test_simple_prompt", { description: "A prompt." }, () =>
    says("This is a simple prompt for testing."),
  );
  const argsSchema = z.object({ arg1: z.string(), arg2: z.string() });
  server.registerPrompt(
    "test_prompt_with_arguments",
    { description: "Asks.", argsSchema },
    ({ arg1, arg2 }) => says(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`),
  );
}

/** A server with the tools, resources and prompts that clients expect of a test server. */
export function createFixtureServer(onCancelled: () => void, options: ServerOptions = {}) {
  const shared = { ttlMs: 60_000, cacheScope: "public" } as const;
  const server = new McpServer(
    { name: "fixture", version: "1.0.0" },
    {
      ...options,
      capabilities: { logging: {} },
      cacheHints: { "tools/list": shared, "resources/list": shared, "prompts/list": shared },
    },
  );
  registerTools(server, onCancelled);
  registerOthers(server);
  return server;
}

export const fixtureTools = [
  "test_simple_text",
  "test_image_content",
  "test_audio_content",
  "test_embedded_resource",
  "test_multiple_content_types",
  "test_error_handling",
  "test_tool_with_progress",
  "query_database",
  "wait",
];
