/** Tools of the suite that interact with the client while they run. */
import { fromJsonSchema, inputRequired, type McpServer } from "@modelcontextprotocol/server";
import { z } from "zod";

function text(words: string) {
  return { content: [{ type: "text" as const, text: words }] };
}

const described = { description: "Talks with its client." };

/** One field of each kind, with a default. */
const defaults = z.object({
  name: z.string().default("John Doe"),
  age: z.int().default(30),
  score: z.number().default(95.5),
  status: z.enum(["active", "inactive", "pending"]).default("active"),
  verified: z.boolean().default(true),
});

const person = z.object({ username: z.string(), email: z.string() });

/** Every form of choice. */
const choices = {
  type: "object" as const,
  properties: {
    untitledSingle: { type: "string" as const, enum: ["option1", "option2", "option3"] },
    titledSingle: {
      type: "string" as const,
      oneOf: ["First", "Second"].map((title) => ({ const: title.toLowerCase(), title })),
    },
    legacyEnum: {
      type: "string" as const,
      enum: ["opt1", "opt2", "opt3"],
      enumNames: ["Option One", "Option Two", "Option Three"],
    },
    untitledMulti: {
      type: "array" as const,
      items: { type: "string" as const, enum: ["option1", "option2", "option3"] },
    },
    titledMulti: {
      type: "array" as const,
      items: { anyOf: ["First", "Second"].map((title) => ({ const: title.toLowerCase(), title })) },
    },
  },
};

/** For revisions in which a server sends requests to its client. */
function registerAskingTools(server: McpServer): void {
  const prompt = z.object({ prompt: z.string() });
  server.registerTool("test_sampling", { ...described, inputSchema: prompt }, async (args, ctx) => {
    const content = { type: "text" as const, text: args.prompt };
    const messages = [{ role: "user" as const, content }];
    const answer = await ctx.mcpReq.requestSampling({ messages, maxTokens: 100 });
    return text(`LLM response: ${JSON.stringify(answer.content)}`);
  });
  const message = z.object({ message: z.string() });
  server.registerTool("test_elicitation", { ...described, inputSchema: message }, (args, ctx) =>
    ctx.mcpReq.inputResponses === undefined
      ? inputRequired({
          inputRequests: { user: inputRequired.elicit({ ...args, requestedSchema: person }) },
        })
      : text(`User response: ${JSON.stringify(ctx.mcpReq.inputResponses)}`),
  );
  for (const [name, requestedSchema] of [
    ["test_elicitation_sep1034_defaults", defaults],
    ["test_elicitation_sep1330_enums", choices],
  ] as const) {
    server.registerTool(name, described, ({ mcpReq }) =>
      mcpReq.inputResponses === undefined
        ? inputRequired({
            inputRequests: { all: inputRequired.elicit({ message: "Which?", requestedSchema }) },
          })
        : text(`Elicitation completed: ${JSON.stringify(mcpReq.inputResponses)}`),
    );
  }
}

/** Tools that only send notifications. */
function registerTellingTools(server: McpServer): void {
  for (const name of ["test_tool_with_logging", "test_logging_tool"]) {
    server.registerTool(name, described, async ({ mcpReq }) => {
      for (const step of ["execution started", "processing data", "execution completed"]) {
        await mcpReq.log("info", `Tool ${step}`);
      }
      return text("done");
    });
  }
  const questions = {
    test_missing_capability: inputRequired.createMessage({ messages: [], maxTokens: 1 }),
    test_streaming_elicitation: inputRequired.elicit({ message: "Who?", requestedSchema: person }),
  };
  for (const [name, question] of Object.entries(questions)) {
    server.registerTool(name, described, () => inputRequired({ inputRequests: { question } }));
  }
}

/** Schemas that must arrive unchanged. */
function registerSchemas(server: McpServer): void {
  const string = { type: "string" as const };
  const region = { ...string, "x-mcp-header": "Region" };
  const composed = fromJsonSchema({
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    $defs: { address: { $anchor: "addressDef", type: "object", properties: { street: string } } },
    properties: { name: string, address: { $ref: "#/$defs/address" }, phone: string },
    allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["name"] }] }],
    if: { properties: { name: { const: "phone" } }, required: ["name"] },
    // biome-ignore lint/suspicious/noThenProperty: it is a keyword of JSON Schema.
    then: { required: ["phone"] },
    else: { required: ["name"] },
    additionalProperties: false,
  });
  const settings = { ...described, inputSchema: composed };
  server.registerTool("json_schema_2020_12_tool", settings, () => text("done"));
  const mirrored = fromJsonSchema({
    type: "object",
    properties: { region },
    required: ["region"],
  });
  server.registerTool("test_x_mcp_header", { ...described, inputSchema: mirrored }, () =>
    text("done"),
  );
}

function registerOthers(server: McpServer): void {
  const { server: protocol } = server;
  protocol.registerCapabilities({ completions: {}, resources: { subscribe: true } });
  protocol.setRequestHandler("completion/complete", () => ({ completion: { values: ["paris"] } }));
  for (const method of ["resources/subscribe", "resources/unsubscribe"] as const) {
    protocol.setRequestHandler(method, () => ({}));
  }
  const argsSchema = z.object({ resourceUri: z.string() });
  const embedding = { ...described, argsSchema };
  server.registerPrompt("test_prompt_with_embedded_resource", embedding, ({ resourceUri: uri }) => {
    const resource = { uri, mimeType: "text/plain", text: "Embedded resource content." };
    return { messages: [{ role: "user", content: { type: "resource", resource } }] };
  });
  const data = Buffer.from("an image").toString("base64");
  server.registerPrompt("test_prompt_with_image", described, () => ({
    messages: [{ role: "user", content: { type: "image", data, mimeType: "image/png" } }],
  }));
}

export function registerClientTools(server: McpServer): void {
  registerAskingTools(server);
  registerTellingTools(server);
  registerSchemas(server);
  registerOthers(server);
}

export const clientTools = [
  "test_sampling",
  "test_elicitation",
  "test_tool_with_logging",
  "test_logging_tool",
  "test_elicitation_sep1034_defaults",
  "test_elicitation_sep1330_enums",
  "test_missing_capability",
  "test_streaming_elicitation",
  "json_schema_2020_12_tool",
  "test_x_mcp_header",
];
