import {
  type JSONRPCMessage,
  McpServer,
  type ServerOptions,
  type Transport,
} from "@modelcontextprotocol/server";
import { errorCode, reasonOf } from "./json-rpc.ts";

type Implementation = ConstructorParameters<typeof McpServer>[0];

/** Why a message is no success; undefined if it is one, or no answer. */
function failureIn(message: JSONRPCMessage): string | undefined {
  if ("error" in message) return reasonOf(message.error.code);
  const isFailedCall = "result" in message && message.result.isError === true;
  return isFailedCall ? reasonOf(errorCode("invalidParams")) : undefined;
}

/** A server that tells of each answer that is no success, before it goes out. */
export class ObservedServer extends McpServer {
  readonly #onFailure: (reason: string) => void;

  /** @param onFailure takes the reason's stable code */
  constructor(
    implementation: Implementation,
    options: ServerOptions,
    onFailure: (reason: string) => void,
  ) {
    super(implementation, options);
    this.#onFailure = onFailure;
  }

  override async connect(transport: Transport): Promise<void> {
    const send = transport.send.bind(transport);
    transport.send = (message, options) => {
      const reason = failureIn(message);
      if (reason !== undefined) this.#onFailure(reason);
      return send(message, options);
    };
    await super.connect(transport);
  }
}
