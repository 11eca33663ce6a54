import type { DestinationStream } from "pino";
import pretty from "pino-pretty";
import { type Colors, eventLine, type LogLine, requestLine } from "./terminal-line.ts";

export interface TerminalOptions {
  readonly hasColors: boolean;
  /** Where the lines go; standard output if left out. */
  readonly destination?: NodeJS.WritableStream;
}

/** `12:03:04` in local time. */
function clockTime(time: unknown): string {
  return new Date(String(time)).toTimeString().slice(0, 8);
}

function toText(line: LogLine, colors: Colors): string {
  return `${colors.dim(clockTime(line.time))} ${requestLine(line, colors) ?? eventLine(line, colors)}`;
}

/** What a line says, whoever says it. */
interface Content {
  readonly isAudit: boolean;
  readonly message: string;
  readonly fields: string;
}

function contentOf(line: string): Content {
  const { time: _, level: __, audit, msg, ...fields } = JSON.parse(line);
  return { isAudit: audit === true, message: String(msg), fields: JSON.stringify(fields) };
}

/** True if the audit notes what the log has said in as many words or more. */
function repeats(content: Content, last: Content | undefined): boolean {
  if (!content.isAudit || last === undefined || last.isAudit) return false;
  return content.fields === last.fields && last.message.startsWith(content.message);
}

/**
 * Takes the log's JSON lines and writes one short line for people in the place of each. The audit
 * comes along in the same stream; where it repeats what the log has just said, that is shown once.
 */
export function terminalStream({ hasColors, destination }: TerminalOptions): DestinationStream {
  const output = pretty({
    colorize: hasColors,
    sync: true,
    // All that a line shows is laid out here.
    hideObject: true,
    customColors: { message: "reset" },
    ignore: "name,pid,hostname",
    timestampKey: "-",
    levelKey: "-",
    messageFormat: (line, _key, _label, { colors }) => toText(line, colors),
    ...(destination === undefined ? {} : { destination }),
  });
  let last: Content | undefined;
  return {
    write(line) {
      const content = contentOf(line);
      if (!repeats(content, last)) output.write(line);
      last = content;
    },
  };
}
