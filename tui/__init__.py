"""The terminal app: shows what the engine records and asks it to act. It keeps no data itself.

From the top down, each part imports only from those below it: `app`; its controllers in
`actions/`; `screens/`; `dialogs/`; `base_app` and `requests`, through which screens reach the app
and its controllers; `widgets/`, which show what they are given and send messages; `plotting/`;
`data/`, plain Python without a terminal; `keymap`, `settings` and `marks`. Nothing here loads
torch.
"""

if __name__ == "tui":  # Python was started in the checkout and found the folder
    from distrain.old_names import refuse

    refuse(__name__)
