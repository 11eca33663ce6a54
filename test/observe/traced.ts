/** Gateways whose requests are traced, and the spans that they leave. */
import { randomBytes } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { SpanKind } from "@opentelemetry/api";
import type { Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { temporaryHome } from "../kit/gateway.ts";

const recorder = fileURLToPath(new URL("span-recorder.ts", import.meta.url));

/** A finished span, as `span-file.ts` writes it. */
export interface RecordedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentId?: string;
  readonly name: string;
  readonly kind: SpanKind;
  readonly attributes: Readonly<Record<string, unknown>>;
  /** 0 unset, 1 good, 2 an error. */
  readonly status: number;
  readonly seconds: number;
  /** The name of the service whose span it is. */
  readonly service: string;
}

/** The spans of one request: its own, and those of what went up for it. */
export interface RecordedTrace {
  readonly server: RecordedSpan;
  readonly upward: readonly RecordedSpan[];
}

/** What a client sends that traces its own part. */
export interface ClientTrace {
  readonly traceId: string;
  readonly spanId: string;
  readonly traceparent: string;
}

/** A new trace of a client's. */
export function clientTrace(): ClientTrace {
  const [traceId, spanId] = [randomBytes(16).toString("hex"), randomBytes(8).toString("hex")];
  return { traceId, spanId, traceparent: `00-${traceId}-${spanId}-01` };
}

/** The file of a gateway's spans. */
export class Recorder {
  readonly #file: string;

  constructor(t: Test) {
    this.#file = path.join(temporaryHome(t), "spans");
  }

  /** The environment of a process that has an SDK of its own, which writes to the file. */
  get fileEnv(): NodeJS.ProcessEnv {
    return { SPANS_FILE: this.#file };
  }

  /** The environment of a process whose spans are recorded. */
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
    return { server, upward: found().filter(({ kind }) => kind === SpanKind.CLIENT) };
  }
}
