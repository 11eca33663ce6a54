/** Tools of the suite that need input from the client before they respond. */
import {
  CLIENT_CAPABILITIES_META_KEY,
  createRequestStateCodec,
  type InputRequest,
  inputRequired,
  type McpServer,
  type ServerContext,
  type ServerOptions,
} from "@modelcontextprotocol/server";
import { z } from "zod";

const states = createRequestStateCodec<number>({ key: Buffer.alloc(32, "conformance") });

/** Verifies the state that a client returns, before any tool runs. */
export const stateOptions: ServerOptions = { requestState: { verify: states.verify } };

function text(words: string) {
  return { content: [{ type: "text" as const, text: words }] };
}

function elicit(message: string, requestedSchema: z.ZodObject): InputRequest {
  return inputRequired.elicit({ message, requestedSchema });
}

function sample(words: string, maxTokens: number): InputRequest {
  const content = { type: "text" as const, text: words };
  return inputRequired.createMessage({ messages: [{ role: "user", content }], maxTokens });
}

const name = z.object({ name: z.string() });
const userName = elicit("What is your name?", name);

/** The requests of each tool before it responds. */
const questions: Readonly<Record<string, Readonly<Record<string, InputRequest>>>> = {
  elicitation: { user_name: userName },
  sampling: { capital_question: sample("What is the capital of France?", 100) },
  list_roots: { client_roots: inputRequired.listRoots() },
};

/** For tools that also keep state with their client; each round requests one element. */
const rounds: Readonly<Record<string, readonly Readonly<Record<string, InputRequest>>[]>> = {
  request_state: [{ confirm: elicit("Please confirm", z.object({ ok: z.boolean() })) }],
  tampered_state: [{ confirm: elicit("Please confirm", z.object({ ok: z.boolean() })) }],
  multiple_inputs: [
    {
      user_name: userName,
      greeting: sample("Generate a greeting", 50),
      client_roots: inputRequired.listRoots(),
    },
  ],
  multi_round: [
    { step1: elicit("Step 1: What is your name?", name) },
    { step2: elicit("Step 2: What is your favorite color?", z.object({ color: z.string() })) },
  ],
};

const envelope = z.object({ [CLIENT_CAPABILITIES_META_KEY]: z.record(z.string(), z.unknown()) });

/** Keeps only requests that the client supports. */
function answerable(
  { mcpReq }: ServerContext,
  asked: Readonly<Record<string, InputRequest>>,
): Record<string, InputRequest> {
  const { [CLIENT_CAPABILITIES_META_KEY]: declared } = envelope.parse(mcpReq.envelope);
  const can = ({ method }: InputRequest) => (method.split("/")[0] ?? "") in declared;
  return Object.fromEntries(Object.entries(asked).filter(([, request]) => can(request)));
}

export function registerInputTools(server: McpServer): void {
  const prefix = "test_input_required_result_";
  const described = { description: "Asks back before it answers." };
  for (const [suffix, inputRequests] of Object.entries(questions)) {
    server.registerTool(`${prefix}${suffix}`, described, ({ mcpReq }) =>
      mcpReq.inputResponses === undefined
        ? inputRequired({ inputRequests })
        : text(`Hello: ${JSON.stringify(mcpReq.inputResponses)}`),
    );
  }
  for (const [suffix, asked] of Object.entries(rounds)) {
    server.registerTool(`${prefix}${suffix}`, described, async (context) => {
      const round = context.mcpReq.requestState<number>() ?? 0;
      const inputRequests = asked[round];
      if (inputRequests === undefined) return text("state-ok");
      return inputRequired({ inputRequests, requestState: await states.mint(round + 1, context) });
    });
  }
  server.registerTool(`${prefix}capabilities`, described, (context) => {
    const all = { ...questions.elicitation, ...questions.sampling };
    return inputRequired({ inputRequests: answerable(context, all) });
  });
  const context = elicit("What context should the prompt use?", z.object({ context: z.string() }));
  server.registerPrompt(`${prefix}prompt`, described, ({ mcpReq }) =>
    mcpReq.inputResponses === undefined
      ? inputRequired({ inputRequests: { user_context: context } })
      : { messages: [{ role: "user", content: { type: "text", text: "In this context." } }] },
  );
}

export const inputTools = [
  ...[...Object.keys(questions), ...Object.keys(rounds), "capabilities"].map(
    (suffix) => `test_input_required_result_${suffix}`,
  ),
];
