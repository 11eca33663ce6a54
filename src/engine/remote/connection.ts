/** A connection to a server, on which one transaction after another is run. */
export interface Connection<Lent> {
  readonly session: Lent;
  /** False once the server or the network has ended it. */
  readonly isUsable: boolean;
  /** Asks the server, by another connection, to end what it does for this one. Never rejects. */
  cancel(): Promise<void>;
  /** Breaks off whatever is under way, at once. */
  cut(): void;
  /** Takes leave of the server; nothing is under way. Never rejects. */
  end(): Promise<void>;
}
