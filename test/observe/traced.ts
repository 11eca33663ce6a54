/** Records the spans of traced gateways. */
import { randomBytes } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { SpanKind } from "@opentelemetry/api";
import type { Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { temporaryHome } from "../kit/gateway.ts";

const recorder = fileURLToPath(new URL("span-recorder.ts", import.meta.url));

/** As `span-file.ts` writes it. */
interface RecordedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentId?: string;
  readonly name: string;
  readonly kind: SpanKind;
  readonly attributes: Readonly<Record<string, unknown>>;
  /** `SpanStatusCode`: 0 unset, 1 ok, 2 error. */
  readonly status: number;
  readonly seconds: number;
  readonly service: string;
}

interface RecordedTrace {
  readonly server: RecordedSpan;
  /** Spans of the forwarded requests. */
  readonly upstream: readonly RecordedSpan[];
}

interface ClientTrace {
  readonly traceId: string;
  readonly spanId: string;
  readonly traceparent: string;
}

export function clientTrace(): ClientTrace {
  const [traceId, spanId] = [randomBytes(16).toString("hex"), randomBytes(8).toString("hex")];
  return { traceId, spanId, traceparent: `00-${traceId}-${spanId}-01` };
}

export class Recorder {
  readonly #file: string;

  constructor(t: Test) {
    this.#file = path.join(temporaryHome(t), "spans");
  }

  /** For a process with an SDK of its own that writes to the file. */
  get fileEnv(): NodeJS.ProcessEnv {
    return { SPANS_FILE: this.#file };
  }

  /** Loads an SDK into a process. */
  get env(): NodeJS.ProcessEnv {
    return { NODE_OPTIONS: `--import ${recorder}`, ...this.fileEnv };
  }

  get text(): string {
    return existsSync(this.#file) ? readFileSync(this.#file, "utf8") : "";
  }

  get spans(): RecordedSpan[] {
    return this.text
      .split("\n")
      .filter(Boolean)
      .map((line) => JSON.parse(line));
  }

  async of({ traceId }: Pick<ClientTrace, "traceId">): Promise<RecordedTrace> {
    const found = () => this.spans.filter((span) => span.traceId === traceId);
    const servers = () => found().filter(({ kind }) => kind === SpanKind.SERVER);
    await eventually(`the trace ${traceId}`, () => servers().length > 0);
    const [server, ...more] = servers();
    if (server === undefined || more.length > 0) throw new Error("not exactly one request");
    return { server, upstream: found().filter(({ kind }) => kind === SpanKind.CLIENT) };
  }
}
