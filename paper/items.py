"""All the items, in the order of the paper."""

from paper import tab_kfoldl, tab_kfoldn, tab_rw

ITEMS = (tab_rw.ITEM, tab_kfoldl.ITEM, tab_kfoldn.ITEM)
