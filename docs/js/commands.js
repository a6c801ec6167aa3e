// The button that copies a block takes its commands alone: no prompt, and nothing that they printed. A backslash at the end
// of a line goes on in the next one.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-clipboard-target]");
  const block = button && document.querySelector(button.dataset.clipboardTarget);
  const commands = block?.textContent.match(/^\$ (.*\\\n)*.*$/gm);
  if (commands) button.dataset.clipboardText = commands.map((command) => command.slice(2)).join("\n");
}, true); // before the theme's own listener reads it
