/** What is wrong with the server, or about to change, above all views. */
import { html } from "../core/elements.js";
import { counted } from "../core/format.js";

/** @param {{overview: object}} props */
export function ServerNotices({ overview }) {
  const { info, figures } = overview;
  const notices = [
    info.fault && ["bad", "The server has a fault", info.fault],
    info.held && ["warn", "Nothing is dispatched", info.held],
    figures.cordon && ["warn", "Nothing new is taken", figures.cordon.text],
    info.draining && ["warn", "The server drains", "What runs may end; nothing new is taken."],
    figures.store_kept > 0 &&
      ["bad", "The store does not write", `${counted(figures.store_kept, "change")} wait for the disk.`],
  ].filter(Boolean);
  return notices.map(
    ([kind, title, text]) => html`<div class=${`notice server ${kind}`} role="status"
      data-testid="server-notice">
      <strong>${title}</strong> <span>${text}</span>
    </div>`,
  );
}
